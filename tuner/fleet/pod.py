"""The command of a task in a pod: `python -m tuner.fleet.pod`.

The pod succeeds if the command ended by itself, whatever its exit code, which is in the log: Kubernetes runs a pod that
fails again. The Job has no policy for exit codes, since a Job with one waits for the pods of a lost node.
"""

import sys

from tuner.fleet import command


def exit_code(code: int) -> int:
    """Return the exit code of a pod, by the code of its command, which is negative if a signal killed it."""
    return 0 if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(exit_code(command.main()))
