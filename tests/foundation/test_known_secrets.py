from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.known_secrets import is_secret, is_secret_by_name

SECRETS = [
    ".env",
    ".env.local",
    ".env.sh",
    ".env.production",
    ".envrc",
    "prod.env",
    ".Renviron",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".htpasswd",
    ".s3cfg",
    "terraform.tfstate",
    "prod.tfvars",
    ".databrickscfg",
    ".aws/credentials",
    ".aws/config",
    ".ssh/id_rsa",
    ".ssh/known_hosts",
    ".gnupg/secring.gpg",
    "home/me/.SSH/config",
    "id_rsa",
    "id_ed25519",
    "deploy/id_ecdsa",
    "id_rsa.bak",
    "key.pem",
    "server.key",
    "SERVER.KEY",
    "me.ppk",
    "cert.p12",
    "store.pfx",
    "app.jks",
    "AuthKey.p8",
    "vault.kdbx",
    "krb5.keytab",
    "release.keystore",
    ".kaggle/kaggle.json",
    "kaggle.json",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".config/gcloud/access_tokens.db",
    ".config/gcloud/legacy/me/adc.json",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".kube/config",
    "kubeconfig",
    "credentials.json",
    "credentials",
    "gcp-credentials.json",
    "client_secret_123.apps.json",
    "service_account.json",
    "my-service-account.json",
    "service-account-key.json",
    "rootkey.csv",
    "me_accessKeys.csv",
    "token.json",
    "secrets.toml",
    ".streamlit/secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "secret.json",
    ".secrets",
    ".secrets/anything.txt",
    ".m2/settings.xml",
    ".cargo/credentials.toml",
    ".pip/pip.conf",
    ".azure/accessTokens.json",
]
ORDINARY = [
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    ".env-example",
    "id_rsa.pub",
    "server.key.example",
    "train.py",
    "secrets.py",
    "secret.py",
    "credentials.py",
    "token.py",
    "environment.yml",
    "keys.csv",
    "public.csv",
    "tokens.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "config.json",
    "docker/config.json",
    ".docker/Dockerfile",
    "settings.xml",
    "monkey.jpg",
    "donkey.csv",
    "passengers.csv",
    ".github/workflows/ci.yml",
    ".gitignore",
    ".azure/pipelines.yml",
    "key.npy",
    "private/net.py",
    "model.safetensors",
    "kube/config",
    "secretary.csv",
    "pip.conf.md",
]


@pytest.mark.parametrize("path", SECRETS)
def test_secrets_are_recognised_in_any_folder(path: str) -> None:
    assert is_secret_by_name(path)
    assert is_secret_by_name(f"/srv/project/{path}")
    assert is_secret_by_name(Path("sub") / path)


@pytest.mark.parametrize("path", ORDINARY)
def test_files_that_training_needs_are_not_secrets(path: str) -> None:
    assert not is_secret_by_name(path)
    assert not is_secret_by_name(f"/srv/project/{path}")


def test_keys_and_accounts_are_recognised_by_what_they_contain(tmp_path: Path) -> None:
    key = (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk=\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    account = {"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\n..."}
    contents = {
        "deploy": (key, True),
        "notes.txt": (f"the key of the server:\n{key}", True),
        "rsa.txt": ("-----BEGIN RSA PRIVATE KEY-----\n", True),
        "project-12ab.json": (json.dumps(account), True),
        "login.json": (json.dumps({"installed": {"client_secret": "x"}}), True),
        "certificate.txt": ("-----BEGIN CERTIFICATE-----\n", False),
        "parser.py": (f'KEY = """\n{key}"""', False),
        "config.json": (json.dumps({"type": "convnet", "private_key": ""}), False),
        "large.txt": (key + "x" * 2**17, False),
    }
    for name, (content, expected) in contents.items():
        (tmp_path / name).write_text(content)
        assert is_secret(tmp_path / name) is expected, name
    assert not is_secret(tmp_path / "missing.txt")
    assert not is_secret(tmp_path)


@given(st.text(max_size=40))
def test_any_name_is_judged(name: str) -> None:
    assert is_secret_by_name(name) in (True, False)
    assert not is_secret_by_name(f"{name}/net.py") or is_secret_by_name(f"{name}/other.py")
