"""Everything specific to PostgreSQL: session setup, notifications, and its errors."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine

from workbench.foundation.errors import StoreError, StoreUnavailableError

CHANNEL = "workbench"
LOCK_TIMEOUT_S = 5.0
_MIGRATION_LOCK = 0x776F726B  # an arbitrary number ("work"), which must be the same in all versions
# Each side gives up a connection if the other has been silent for half a minute: 10 s until the
# first probe, then 3 probes every 5 s. tcp_user_timeout (in ms) covers data that is not
# acknowledged.
_CONNECT = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "fallback_application_name": "workbench",
}
_SESSION = (
    "SET lock_timeout = '{lock_timeout_s}s'; SET tcp_keepalives_idle = 10; SET"
    " tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
)

# An error of a rejected connection has no code, so the English texts of PostgreSQL and PgBouncer
# are matched. If a server uses another language or another text, the reason is unknown. The run
# then waits for the store, as after any fault that may pass.
_CODES_OF_WORDS = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"password authentication failed for user ", "28P01"),
        (r"(?:fe_sendauth: )?no password supplied", "28P01"),
        (r"SASL authentication failed|(?:client_auth|auth) failed", "28P01"),
        (r"\S+ authentication failed for user ", "28000"),
        (r"no pg_hba\.conf entry for |pg_hba\.conf rejects ", "28000"),
        (r'role ".*" (?:does not exist|is not permitted to log in)', "28000"),
        (r"no such user|connection requires a valid client certificate", "28000"),
        (r'database ".*" does not exist|no such database', "3D000"),
        (r"permission denied for database ", "42501"),
        (r"too many connections for |sorry, too many clients already", "53300"),
        (r"remaining connection slots are reserved|no more connections allowed", "53300"),
        (r"the database system is |pgbouncer cannot connect to server|server login ", "57P03"),
        (r"could not translate host name|failed to resolve host", "host"),
        (r"(?:SSL error: )?certificate verify failed", "certificate"),
        (r"server certificate for .* does not match host name", "certificate host"),
        (r"(?:could not read )?root certificate file ", "certificate file"),
        (r"server does not support SSL, but SSL was required|SSL error: ", "tls"),
        (r"(?:SSL|TLS) required", "tls required"),
        (r"invalid \w+ value: ", "option"),
        (r"(?:server|session) is (?:not )?(?:in hot standby mode|read-only)", "25006"),
    )
)
_ANSWERED = re.compile(r"\b(?:FATAL|PANIC|ERROR): ")
"""Shows that a server has answered: these levels have the same names in most languages."""
_ATTEMPT = re.compile(r"^- host: .*?: ", re.MULTILINE)
_LASTING = {
    "28P01": (
        "the password is missing or wrong",
        (
            "Put it into PGPASSWORD, the file ~/.pgpass, or the URL:"
            " postgresql://USER:PASSWORD@HOST/DATABASE."
        ),
    ),
    "28000": (
        "the server does not allow this user to connect from here",
        (
            "Use another user in the URL, or ask an administrator to create this one and to allow"
            " it in pg_hba.conf."
        ),
    ),
    "3D000": ("there is no such database", "Create it: createdb --encoding UTF8 NAME."),
    "42501": (
        "this user does not have permission",
        "Make the user the owner of the database, or: GRANT CREATE ON SCHEMA public TO the user.",
    ),
    "certificate": (
        "the certificate of the server is not trusted",
        (
            "Set sslrootcert in the URL to the file of its certificate authority. If the"
            " certificate has expired, renew it."
        ),
    ),
    "certificate host": (
        "the certificate of the server is for another host",
        "Use a host name that is in the certificate, or sslmode=verify-ca.",
    ),
    "certificate file": (
        "the file of trusted certificates cannot be read",
        "Set sslrootcert in the URL to its path, or put it at ~/.postgresql/root.crt.",
    ),
    "tls": (
        "an encrypted connection is not possible",
        "Enable TLS on the server, or change sslmode in the URL.",
    ),
    "tls required": (
        "the server accepts encrypted connections only",
        "Add sslmode=require to the URL.",
    ),
    "option": ("an option in the URL is wrong", "Correct it. It takes the options of libpq."),
}
_DENIED = (
    (
        re.compile(r"permission denied for database "),
        "this user may not connect to the database",
        "Allow it: GRANT CONNECT ON DATABASE NAME TO the user.",
    ),
    (
        re.compile(r"permission denied for (?:table|relation|sequence) "),
        "this user does not have permission to read or change the data of the store",
        (
            "SELECT is enough to read. To run: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"
            " IN SCHEMA public TO the user, and USAGE ON ALL SEQUENCES."
        ),
    ),
    (
        re.compile(r"must be owner of "),
        "only the owner of the tables can update them to this version",
        "Let the owner open the store once with this version of the workbench.",
    ),
)
"""Missing permissions, by the text of an error with the code 42501."""
_PASSING = {
    "host": ("the host name cannot be resolved", "Check the host in the URL."),
    "53300": (
        "the server has no free connection for this user",
        "Raise max_connections, or the limit of the user or the database, or close connections.",
    ),
    "53100": ("the disk of the server is full", "Free space on it."),
    "57P03": ("the server is starting or stopping", "Try again in a moment."),
    "25006": (
        "the database is read-only, like a standby server",
        "Use the primary server, or a user whose default_transaction_read_only is off.",
    ),
    "55P03": ("another process keeps the database locked", "Find it in pg_stat_activity."),
}
_REFUSED = ("the server rejects connections now", "Read its message above, and its log.")
_ELSE = ("the server cannot be reached", "Check that it is up, and the host and port in the URL.")
_PASSING_CLASSES = ("08", "40", "53", "55", "57", "58")
_BUSY = ("the server cannot process the request now", "Check its log.")


def make_engine(url: URL) -> Engine:
    """Make the engine of a database.

    Args:
        url: Its URL, which may contain options of libpq.

    Raises:
        ImportError: If the driver, or the library that it needs, is not installed.
    """
    options: dict[str, Any] = {
        name: value for name, value in _CONNECT.items() if name not in url.query
    }
    # A pooler may run the next transaction in another session, without the prepared statements.
    options["prepare_threshold"] = None
    # A team has many processes, but a server has few connections.
    engine = sa.create_engine(
        url, connect_args=options, pool_pre_ping=True, pool_size=3, use_native_hstore=False
    )
    event.listen(engine, "connect", _begin_session)
    return engine


def _begin_session(connection: Any, _record: object) -> None:
    connection.autocommit = True  # in a transaction, a rollback would undo the settings
    connection.execute(_SESSION.format(lock_timeout_s=LOCK_TIMEOUT_S))
    connection.autocommit = False


def complete(connection: Connection) -> URL:
    """Return the URL, completed from the environment, a service file and a password file.

    A driver on another machine, or in a process that was started earlier, does not have them.
    """
    url, info = connection.engine.url, _driver_connection(connection).info
    parameters = info.get_parameters()
    user, database = parameters.pop("user", None), parameters.pop("dbname", None)
    for name in (*_CONNECT, "client_encoding", "passfile", "service", "servicefile"):
        parameters.pop(name, None)
    connect_options = {name: value for name, value in url.query.items() if name in _CONNECT}
    return URL.create(
        url.drivername,
        username=user,
        password=info.password or None,
        database=database,
        query={**{name: str(value) for name, value in parameters.items()}, **connect_options},
    )


def clock_ahead_s(connection: Connection, now_unix_s: float) -> float:
    """Return by how many seconds the server's clock is ahead of the time that is now here."""
    return (
        float(connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")))
        - now_unix_s
    )


def lock_for_migration(connection: Connection, timeout_s: float) -> None:
    """Keep other processes from changing the schema until the transaction ends.

    Raises:
        StoreError: If the database does not use UTF-8, so it cannot store every text.
    """
    encoding = connection.scalar(sa.text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise StoreError(
            f"the database has the encoding {encoding}",
            field="store",
            allowed="UTF8",
            next_step="Create another one: createdb --encoding UTF8 --template template0 NAME.",
        )
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{timeout_s:g}s'")
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))


def notify_listeners(connection: Connection) -> None:
    """Notify all listeners once this transaction is committed."""
    connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


def listen(connection: Connection) -> Any:
    """Listen on a connection, and return the driver's one, whose `notifies` waits for news."""
    listening = _driver_connection(connection)
    listening.autocommit = True
    listening.execute(f"LISTEN {CHANNEL}")
    return listening


def _driver_connection(connection: Connection) -> Any:
    return connection.connection.driver_connection


def translate(cause: BaseException, place: str, *, is_lost: bool) -> StoreError | None:
    """Translate an error of the driver.

    Args:
        cause: The error.
        place: The place of the database, without its password.
        is_lost: Whether the connection was lost or could not be made.

    Returns:
        The translated error, or None if the user can do nothing about it.
    """
    message = str(cause).strip()
    code = getattr(cause, "sqlstate", None)
    if is_lost and code is None:
        code, message = _reason_of(message)
    first = message.partition("\n")[0]
    if code in _LASTING:
        problem, next_step = _LASTING[code]
        if code == "42501":
            denied = (
                (reason, step) for pattern, reason, step in _DENIED if pattern.search(message)
            )
            problem, next_step = next(denied, (problem, next_step))
        return StoreError(f"{place}: {problem} ({first})", field="store", next_step=next_step)
    if code in _PASSING or is_lost or (code is not None and code[:2] in _PASSING_CLASSES):
        problem, next_step = _PASSING.get(code or "", _BUSY)
        if code is None:
            problem, next_step = _REFUSED if _ANSWERED.search(message) else _ELSE
        return StoreUnavailableError(f"{place}: {problem} ({first})", next_step=next_step)
    return None


def _reason_of(message: str) -> tuple[str | None, str]:
    """Return the code for the text of a rejected connection, and the text.

    If several addresses were tried, an answer takes precedence over no answer, and a fault that may
    pass over one that lasts.
    """
    _, _, listed = message.partition("All failures were:")
    attempts = [part.strip() for part in _ATTEMPT.split(listed) if part.strip()] or [message]
    answers = [attempt for attempt in attempts if _ANSWERED.search(attempt)] or attempts
    reasons = [(_code_of(answer), answer) for answer in answers]
    return next((reason for reason in reasons if reason[0] not in _LASTING), reasons[0])


def _code_of(message: str) -> str | None:
    first = message.partition("\n")[0]
    is_answered = _ANSWERED.search(first)
    reason = (
        first[is_answered.end() :] if is_answered else re.split(r" failed: | is bad: ", first)[-1]
    )
    return next((code for pattern, code in _CODES_OF_WORDS if pattern.match(reason.lstrip())), None)
