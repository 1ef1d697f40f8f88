"""A small certificate authority for the tiers: one certificate each, valid for a short time.

The key of the authority stays in memory: when it is gone, nobody can issue another certificate.
Uses the `cryptography` package. A tier's process reads the files with Python's `ssl`, which
`transport` does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from typing_extensions import Self

from workbench.deploy.distributions import needs

with needs("cryptography"):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_S = 24 * 3600.0
"""How long a certificate is valid unless another time is given."""
CLOCK_S = 300.0
"""How far the clock of another machine may be behind."""
AUTHORITY = "authority.pem"


@dataclass(frozen=True)
class Authority:
    """Issues certificates. `create` makes a new authority, whose key exists nowhere else."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, *, valid_s: float = VALID_S, now: datetime | None = None) -> Self:
        """Make an authority.

        Args:
            valid_s: How long it is valid. No certificate that it issues is valid for longer.
            now: When it is made, or None for the current time.
        """
        now = now or datetime.now(timezone.utc)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("workbench tiers")
        made = (
            _builder(name, name, key.public_key(), now, now + timedelta(seconds=valid_s))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(made, key)

    def issue(
        self, name: str, folder: Path, *, valid_s: float = VALID_S, now: datetime | None = None
    ) -> None:
        """Write a tier's certificate and key, and the certificate of the authority.

        Args:
            name: The name of the tier, which the other side of a connection checks. It must be a
                valid host name.
            folder: Where `NAME.pem`, `NAME.key` and `authority.pem` are written. The key is its
                owner's only.
            valid_s: How long the certificate is valid.
            now: When it becomes valid, or None for the current time.
        """
        now = now or datetime.now(timezone.utc)
        key = ec.generate_private_key(ec.SECP256R1())
        # A certificate that outlives its authority is not accepted.
        until = min(now + timedelta(seconds=valid_s), self.certificate.not_valid_after_utc)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = (
            _builder(_name(name), self.certificate.subject, key.public_key(), now, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        pem = serialization.Encoding.PEM
        (folder / AUTHORITY).write_bytes(self.certificate.public_bytes(pem))
        (folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
        plain = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = folder / f"{name}.key"
        # O_EXCL creates the key with its permissions. An older file would keep its own.
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(plain)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - timedelta(seconds=CLOCK_S))
        .not_valid_after(end)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
