"""Recognises files that are secrets: private keys, passwords, and tokens of services.

A file is recognised by its name and its folder. A private key or the account of a service is also
recognised by its content, whatever its name. Source code is never a secret, because without it
nothing would run.
"""

from __future__ import annotations

import re
from fnmatch import translate
from pathlib import Path, PurePath

_NAMES = """
    .env* *.env .envrc .flaskenv .renviron .renviron.*

    .netrc _netrc .authinfo .authinfo.gpg .git-credentials .pypirc .npmrc .yarnrc .yarnrc.yml
    .dockercfg
    .pgpass pgpass.conf .pg_service.conf .my.cnf .mylogin.cnf .mongorc.js .rediscli_auth
    .odbc.ini .snowsql.cnf .s3cfg .boto .passwd-s3fs .databrickscfg .terraformrc terraform.rc
    .vault-token .hf_token .htpasswd rclone.conf kubeconfig *.kubeconfig *.tfvars *.tfvars.json
    *.tfstate *.tfstate.* htpasswd .*_history

    kaggle.json credentials credentials.* *_credentials.json *-credentials.json client_secret*.json
    service_account*.json service-account*.json serviceaccount*.json *service_account.json
    *service-account.json *serviceaccount.json *service_account_key.json *service-account-key.json
    accesskeys.csv *_accesskeys.csv rootkey.csv token.json token.txt .token api_key api_key.txt
    apikey.txt
    .api_key password password.txt passwords.txt
    secret secrets .secret .secrets secret.* secrets.* .secret.* .secrets.*

    id_rsa* id_dsa* id_ecdsa* id_ed25519* *.pem *.key *.ppk *.p8 *.p12 *.pk8 *.pfx *.jks *.keystore
    *.bcfks
    *.kdb *.kdbx *.keychain *.keychain-db *.keytab *.agekey *.ovpn
"""
"""Names of files, wherever they are."""
_PATHS = """
    .docker/config.json .docker/daemon-key.json .kube/config .m2/settings.xml
    .m2/settings-security.xml
    .gradle/gradle.properties .cargo/credentials .gem/credentials .bundle/config
    .composer/auth.json
    .pip/pip.conf pip/pip.conf .streamlit/secrets.toml huggingface/token huggingface/stored_tokens
    .modal.toml .azure/accesstokens.json .azure/msal_token_cache.*
    .azure/service_principal_entries.*
    .config/hub .config/wandb/settings wandb/settings .config/git/credentials
    .jupyter/jupyter_server_config.json
"""
"""The last parts of paths."""
_FOLDERS = """
    .aws .ssh .gnupg .kaggle .huggingface .oci .password-store .secrets .credentials .chef
    .config/gcloud .config/gh .config/doctl .config/op .config/rclone .config/kaggle
    .local/share/keyrings
"""
"""Folders whose files are all secrets."""
_TEMPLATE = re.compile(r"[._-](?:examples?|sample|template|tmpl|tpl|dist|schema)$")
"""Endings of files that show which variables are needed, without their values."""
_CODE = frozenset(
    f".{ending}"
    for ending in (
        *("c", "cc", "cpp", "cu", "cuh", "go", "h", "hpp", "ipynb", "java", "jl", "js", "md"),
        *("proto", "py", "pyi", "pyx", "r", "rs", "rst", "scala", "sh", "so", "ts", "tsx"),
    )
)
_PRIVATE = re.compile(
    rb"^\s*-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?:"
    rb" BLOCK)?-----|^PuTTY-User-Key-File-|^\s*AGE-SECRET-KEY-1",
    re.MULTILINE,
)
_ACCOUNT = re.compile(
    rb'"type"\s*:\s*"(?:service_account|authorized_user)"|"(?:private_key|client_secret)"\s*:\s*"[^"]'
)
_LARGEST_BYTES = 64 * 2**10
"""No key and no account is larger, so the content of larger files is not read."""


def _any_of(patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(translate(pattern) for pattern in patterns.split()))


_NAME, _PATH, _FOLDER = _any_of(_NAMES), _any_of(_PATHS), _any_of(_FOLDERS)
_MAX_PARTS = 3
"""The most parts that a pattern of a path has."""


def is_secret_by_name(path: str | PurePath) -> bool:
    """Return whether a file is a secret by its name and the folders that contain it.

    Args:
        path: Its path, absolute or relative. The file need not exist, and case does not matter.

    Example:
        >>> from workbench.foundation.known_secrets import is_secret_by_name
        >>> paths = (".env", ".env.example", "home/.ssh/config", "secrets.py")
        >>> [is_secret_by_name(path) for path in paths]
        [True, False, True, False]
    """
    parts = [part.casefold() for part in PurePath(path).parts]
    if not parts:
        return False
    for end in range(1, len(parts)):
        if any(
            _FOLDER.match("/".join(parts[start:end]))
            for start in range(max(0, end - _MAX_PARTS), end)
        ):
            return True
    name = parts[-1]
    ending = PurePath(name).suffix
    is_code = ending in _CODE and not name.startswith(".env")
    if is_code or ending == ".pub" or _TEMPLATE.search(name):
        return False
    paths = (
        "/".join(parts[start:]) for start in range(max(0, len(parts) - _MAX_PARTS), len(parts))
    )
    return bool(_NAME.match(name)) or any(_PATH.match(path) for path in paths)


def is_secret(path: Path, *, below: Path | None = None) -> bool:
    """Return whether a file is a secret, by its name and folders or by its content.

    Private keys, and files in JSON with a private key or the account of a service, are recognised
    by content.

    Args:
        path: An existing file. If it cannot be read, only its name counts.
        below: A folder that contains it. The names of that folder and its parents do not count.
    """
    name = path if below is None else path.relative_to(below)
    return is_secret_by_name(name) or (
        path.suffix.casefold() not in _CODE and _is_key_or_account(path)
    )


def _is_key_or_account(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
            return False
        content = path.read_bytes()
    except OSError:
        return False
    if path.suffix.casefold() == ".json":
        return bool(_ACCOUNT.search(content))
    return bool(_PRIVATE.search(content))
