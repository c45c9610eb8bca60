"""Policies that say whom the host is to a broker or another service. `build.py` names the world `credential-resolver`.

Texts of failures and lines of the log must hold no secret.
"""

from typing import Any, Callable, NoReturn

from componentize_py_types import Err
from wit_world.exports import credentials as contract
from wit_world.exports.credentials import Purpose, Request, Secret
from wit_world.imports import env, files, http

from .policy import *
from .policy import lifecycle_of, millis, told


def environment(name: str) -> str | None:
    """An environment variable of the host; `None` when it is not granted or not set."""
    return env.get(name)


def read_file(path: str) -> bytes:
    """The bytes of a file `NAME/rest`, where NAME is that of a granted directory."""
    return _granted(f"the file `{path}`", lambda: files.read(path))


def request(
    url: str, *, method: str = "GET", headers: list[tuple[str, str]] | None = None, body: bytes = b""
) -> http.Response:
    """An HTTP request through the host: an answer with `status`, `headers` and `body`."""
    return _granted("the request", lambda: http.fetch(http.Request(method, url, headers or [], body)))


def unavailable(message: str) -> NoReturn:
    """There is none now; asking again later may help."""
    raise Err(contract.Failure_Unavailable(message))


def denied(message: str) -> NoReturn:
    """There is none; asking again does not help until somebody changes something."""
    raise Err(contract.Failure_Denied(message))


def none() -> Secret:
    """The endpoint wants none."""
    return contract.Secret_None()


def bearer(token: str) -> Secret:
    """A token."""
    return contract.Secret_Bearer(token)


def login(username: str, password: str) -> Secret:
    """A name and a password."""
    return contract.Secret_Login(contract.Login(username, password))


def access_key(id: str, secret: str, session_token: str | None = None) -> Secret:
    """An access key."""
    return contract.Secret_AccessKey(contract.AccessKey(id, secret, session_token))


def identity(certificate_chain: str, private_key: str) -> Secret:
    """A certificate and its key, as PEM."""
    return contract.Secret_Identity(contract.Identity(certificate_chain, private_key))


def credential_resolver(policy: Any) -> tuple[type, type]:
    """`Lifecycle` and `Credentials` of a policy with `describe()`, `configure(rules)` and `resolve(request)`.

    `resolve` answers a secret and the milliseconds for which it may be used, or `None` for these. The module of the
    policy must have both classes, by these names.
    """

    class Credentials:
        @told
        def resolve(self, request: Request) -> contract.Resolved:
            secret, valid_for = policy.resolve(request)
            return contract.Resolved(secret, None if valid_for is None else millis(valid_for))

    return lifecycle_of(policy), Credentials


def _granted(what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Err as error:
        unavailable(f"{what} cannot be had: {error.value}")
