"""`tuner db`: describe, upgrade, back up and prune a database."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta

import click

from tuner.cli.grid import Output
from tuner.cli.ops import db_option, json_option
from tuner.cli.text import print_json, say
from tuner.db.database import Database
from tuner.db.revisions import HEAD
from tuner.db.store import Store, default_database
from tuner.db.upkeep import Counts
from tuner.errors import StoreError
from tuner.report.text import count_text


def _info(db: Database | None, as_json: bool) -> None:
    info = Store.info(db or default_database())
    if as_json:
        print_json({**asdict(info), "newest_schema": HEAD})
        return
    upgrade = "" if info.schema == HEAD else f"; this version writes {HEAD}"
    click.echo(f"database  {info.database}")
    click.echo(f"engine    {info.engine}")
    click.echo(f"schema    {info.schema or 'none, since there are no tables'}{upgrade}")
    click.echo(f"size      {info.bytes / 1e6:,.1f} MB")
    click.echo(f"holds     {_counted(info.total)}")
    for device, counts in info.devices.items():
        click.echo(f"          {_counted(counts)} of {device}")


def _counted(counts: Counts) -> str:
    named = {"run": counts.runs, "trial": counts.trials, "answer": counts.answers}
    return ", ".join(count_text(count, name) for name, count in named.items())


def _upgrade(db: Database | None) -> None:
    database = db or default_database()
    found = Store.upgrade(database)
    if found == HEAD:
        click.echo(f"{database} already has the newest schema, {HEAD}")
    else:
        click.echo(f"{database} is upgraded to schema {HEAD}, from {found or 'no tables'}")


def _backup(file: str, db: Database | None) -> None:
    database = db or default_database()
    database.back_up(file)
    click.echo(f"{database} is copied to {file}")


def _prune(older_than: timedelta, dry_run: bool, db: Database | None) -> None:
    database = db or default_database()
    if not database.exists():
        raise StoreError(f"there is no database at {database}; name one with --db")
    store = Store.open(database)
    try:
        gone = store.prune(older_than, dry_run=dry_run)
    finally:
        store.close()
    removed = "would be removed" if dry_run else "are removed"
    Output().write(
        f"{gone.trials:,} trials and {gone.rounds:,} rounds of {gone.runs:,} runs {removed}; all answers stay"
    )
    if gone.trials and not dry_run:
        say("The file keeps its size; later writes reuse the space.")


def _days(text: str) -> timedelta:
    if not re.fullmatch(r"[1-9][0-9]{0,4}d", text):
        raise click.BadParameter(f"an age is a number of days, such as 90d, not {text[:40]!r}")
    return timedelta(days=int(text[:-1]))


command = click.Group("db", help="Describe, upgrade, back up or prune the database.")
command.add_command(
    click.Command(
        "info",
        callback=_info,
        params=[db_option, json_option],
        help="Show a database's location, engine, schema and size, and its content by device.",
    )
)
command.add_command(
    click.Command(
        "upgrade",
        callback=_upgrade,
        params=[db_option],
        help="Create the tables or upgrade them to the newest schema. Several hosts may do so at once.",
    )
)
command.add_command(
    click.Command(
        "backup",
        callback=_backup,
        params=[click.Argument(["file"], type=click.Path(dir_okay=False)), db_option],
        help="Copy an SQLite database to a new FILE while it is in use.",
    )
)
command.add_command(
    click.Command(
        "prune",
        callback=_prune,
        params=[
            click.Option(
                ["--older-than"],
                type=_days,
                metavar="DAYS",
                required=True,
                help="Smallest age of the runs, such as 90d.",
            ),
            click.Option(["--dry-run"], is_flag=True, help="Only report what would be removed."),
            db_option,
        ],
        help="Remove the trials and rounds of old runs that no answer in service depends on. Answers stay.",
    )
)
for each in command.commands.values():
    each.short_help = each.help  # click truncates the first sentence of a help otherwise
