"""Certificates for `*.googleapis.com` on loopback, and a key of an account that is nowhere."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any


def write_certificates(folder: Path) -> tuple[Path, Path]:
    """An authority's certificate, and one for the proxy with its key; valid for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(words: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])

    now = datetime.now(timezone.utc)

    def certificate(subject: str, public: Any, *extensions: tuple[Any, bool]) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("loopback authority"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(issuer, critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority_key, hashes.SHA256())

    authority_key, own_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        + ("encipher_only", "decipher_only", "crl_sign"),
        False,
    )
    root = certificate(
        "loopback authority",
        authority_key.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), True),
        (x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), False),
    )
    names = [x509.DNSName("*.googleapis.com"), x509.DNSName("googleapis.com")]
    leaf = certificate(
        "googleapis.com on loopback",
        own_key.public_key(),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, key_cert_sign=False, **usage), True),
        (x509.SubjectAlternativeName(names), False),
    )
    pem = serialization.Encoding.PEM
    secret = own_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    authority, own = folder / "authority.pem", folder / "proxy.pem"
    authority.write_bytes(root.public_bytes(pem))
    own.write_bytes(secret + leaf.public_bytes(pem))
    return authority, own


def write_service_account(path: Path, token_uri: str) -> Path:
    """A service account's key file; its tokens come from the address given."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": "loopback",
        "private_key_id": "loopback",
        "private_key": secret.decode(),
        "client_email": "nobody@loopback.iam.gserviceaccount.com",
        "client_id": "1",
        "auth_uri": token_uri,
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(account))
    return path
