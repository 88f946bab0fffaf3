"""`tuner report`: the pages of the service as static files."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from tuner.cli.grid import Output, escape, print_lines
from tuner.cli.ops import EMPTY, db_option, json_option, known_signatures, open_to_read
from tuner.cli.text import print_json
from tuner.cli.whole import Whole
from tuner.db.database import Database
from tuner.errors import NothingFound, UsageError
from tuner.report.text import count_text

_MOST_PROBLEMS = 20_000


def _report(
    folder: Path, op: str | None, device: str | None, problems: int | None, db: Database | None, as_json: bool
) -> int:
    try:
        from tuner.api.pages.report import SETTINGS, report_site, write_report
    except ModuleNotFoundError as error:
        raise UsageError(f"a report needs {error.name}; pip install 'triton-tuner[serve]'") from error
    with closing(open_to_read(db)) as store:
        site = report_site(store, known_signatures(db), op, device)
        if not site.view.answers:
            raise NothingFound(
                EMPTY if op is None and device is None else "no such answer is stored; tuner list shows what is"
            )
        written = write_report(site, folder, replace(SETTINGS, problems=problems or SETTINGS.problems))
    if as_json:
        print_json({**vars(written), "folder": str(written.folder)})
        return 0
    pages, known = count_text(written.pages, "page"), count_text(written.problems, "problem")
    lines = [f"{escape(str(written.folder / 'index.html'))} is the first of {pages}, for {known}"]
    if written.left_out:
        older = count_text(written.left_out, "problem")
        lines.append(f"  without a page, since their answers are older: {older}; --problems sets the number")
    print_lines(lines, Output())
    return 0


command = click.Command(
    "report",
    callback=_report,
    params=[
        click.Option(
            ["--html", "folder"],
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            required=True,
            help="Folder to write: new, empty, or an earlier report, which is replaced.",
        ),
        click.Option(["--op"], metavar="OP", help="Only this op."),
        click.Option(["--device"], metavar="ID", help="Only this device."),
        click.Option(
            ["--problems"],
            type=Whole(1, _MOST_PROBLEMS),
            metavar="N",
            help="Problems with a page, those with the newest answers first.  [default: 100]",
        ),
        db_option,
        json_option,
    ],
    help="Write the pages of the service as files, for a pull request or an archive. They load nothing from elsewhere.",
)
