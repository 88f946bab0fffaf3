"""Finding the files of an import, and reading each in its format."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError, reason
from tuner.exchange import config_tables, json_text, kernel_tuner, t4, triton_autotune
from tuner.exchange.imported import (
    LIMITS,
    UNKNOWN_FORMAT,
    ImportedConfig,
    ImportFile,
    ImportLimits,
    ImportOptions,
    Skipped,
)
from tuner.lookup import bundle
from tuner.lookup.bundle import Bundle
from tuner.records import files

_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True)
class ReadFiles:
    """Content of the files of one import."""

    files: int
    """Number of files."""
    configs: tuple[ImportedConfig, ...]
    bundles: tuple[tuple[str, Bundle], ...]
    """Each with the shown name of its file."""
    skipped: tuple[Skipped, ...]
    """Parts of files in a known format."""
    not_understood: tuple[Skipped, ...]
    """Files of which nothing could be read."""

    @property
    def count(self) -> int:
        """Number of answers and configs in the files, with the skipped ones."""
        in_bundles = sum(len(held.answers) for _, held in self.bundles)
        return len(self.configs) + in_bundles + len(self.skipped)


def read(paths: Sequence[Path], options: ImportOptions, limits: ImportLimits = LIMITS) -> ReadFiles:
    """Return the content of files, and of the JSON files in folders.

    Files of one name are shown with as many of their folders as tell them apart.

    Raises:
        UsageError: A path does not exist.
    """
    configs, skipped, not_understood = list[ImportedConfig](), list[Skipped](), list[Skipped]()
    bundles = list[tuple[str, Bundle]]()
    names = _shown_names({os.path.abspath(path): path for path in _found(paths)}.values())
    for path, name in names.items():
        try:
            if _is_bundle(path):
                held = bundle.read(path)
                bundles.append((name, held))
                skipped += [Skipped(name, why) for why in held.skipped]
                continue
            content = list(_configs(ImportFile(path, _document(path, limits.max_bytes), name), options))
            if not content:
                raise UsageError("it has no config")
        except UsageError as error:
            not_understood.append(Skipped(name, str(error)))
            continue
        configs += [one for one in content if isinstance(one, ImportedConfig)]
        skipped += [one for one in content if isinstance(one, Skipped)]
    return ReadFiles(len(names), tuple(configs), tuple(bundles), tuple(skipped), tuple(not_understood))


def _found(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of an import; in a folder vLLM's spelling `[128,128]` first, since the first config counts.

    What a folder has under the name of a JSON file is yielded if it is not a folder, so that a FIFO is reported.
    """
    for path in paths:
        try:
            path.stat()
        except FileNotFoundError as error:
            raise UsageError(f"there is no file or folder {path}") from error
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {reason(error)}") from error
        if path.is_dir():
            inside = (file for file in path.rglob("*") if file.name.endswith(_SUFFIXES) and not file.is_dir())
            yield from sorted(inside, key=lambda file: (", " in file.name, str(file)))
        else:
            yield path


def _shown_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the shortest end of each path that no other one has: the file's name, with folders if need be."""
    whole = {path: Path(os.path.abspath(path)).parts for path in paths}
    names, left, length = dict.fromkeys(whole, ""), list(whole), 0
    while left:
        length += 1
        ends = {path: whole[path][-length:] for path in left}
        count = Counter(ends.values())
        names |= {
            path: _printable(os.path.join(*end))
            for path, end in ends.items()
            if count[end] == 1 or length >= len(whole[path])
        }
        left = [path for path in left if not names[path]]
    return names


def _printable(name: str) -> str:
    """Return a name as UTF-8 can have it: names of files may be any bytes."""
    return os.fsencode(name).decode(errors="replace")


def _configs(file: ImportFile, options: ImportOptions) -> Iterator[ImportedConfig | Skipped]:
    """Yield the configs of a file in whichever format it has.

    Raises:
        UsageError: It has none that is known, or one that lacks something.
    """
    table = config_tables.imported_configs(file)
    if table is not None:
        yield from table
        return
    for format in (triton_autotune, kernel_tuner, t4):
        config = format.imported_config(file, options)
        if config is not None:
            yield config
            return
    raise UsageError(UNKNOWN_FORMAT)


def _is_bundle(path: Path) -> bool:
    try:
        return files.read_start(path, len(bundle.BEGINS)) == bundle.BEGINS
    except (OSError, files.Damaged) as error:
        raise _unreadable(error) from error


def _document(path: Path, max_bytes: int) -> object:
    try:
        return json_text.parsed(files.read(path, max_bytes))
    except (OSError, files.TooLarge, files.Damaged) as error:
        raise _unreadable(error) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {reason(error)}") from error


def _unreadable(error: OSError | ValueError) -> UsageError:
    match error:
        case files.TooLarge():
            return UsageError(str(error))
        case files.Damaged():
            return UsageError(f"it is damaged: {error}")
    return UsageError(f"it cannot be read: {reason(error)}")
