"""The command line: groups of thin commands that check, call and print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tacit.apps.cli import (
    account,
    ask,
    campaign,
    collect,
    demo,
    federate,
    release,
    study,
    survey,
    train,
)
from tacit.apps.cli.console import BAD_INPUT, REFUSED
from tacit.apps.cli.groups import group
from tacit.privacy import errors, lazy

app = group(
    "Learn from people's data without ever holding it raw, and state what is protected.",
    "tacit demo",
)
demo.register(app)
app.add_typer(collect.app, name="collect", rich_help_panel="People who trust nobody")
app.add_typer(survey.app, name="survey", rich_help_panel="People who trust nobody")
ask.register(app)
app.add_typer(release.app, name="release", rich_help_panel="Records that you hold")
app.add_typer(train.app, name="train", rich_help_panel="Records that you hold")
app.add_typer(federate.app, name="federate", rich_help_panel="Rows that stay with their owners")
app.add_typer(account.app, name="account", rich_help_panel="Guarantees")
app.add_typer(campaign.app, name="campaign", rich_help_panel="Collecting over the web")
study.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; errors are one line on standard error."""
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="tacit")
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as help_text:
        print(help_text.format_message())
        return 0
    except click.ClickException as error:
        return _fail(error.format_message(), BAD_INPUT)
    except (errors.CertificateError, errors.BudgetExceeded) as error:
        return _fail(str(error), REFUSED)
    except errors.TacitError as error:
        return _fail(str(error), BAD_INPUT)
    except ModuleNotFoundError as error:
        return _fail(lazy.hint("this command", error), BAD_INPUT)
    except ImportError as error:
        return _fail(str(error), BAD_INPUT)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _fail(message, BAD_INPUT)
    except click.Abort:
        return _fail("stopped", 130)


def _fail(message: str, code: int) -> int:
    print("tacit: " + " ".join(message.split()), file=sys.stderr)
    return code


def run() -> NoReturn:
    """Run the console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
