"""Sessions of people signed in with the service's token, and the tokens of their forms. Nothing of them is stored.

All that a browser is given is signed with a key that follows from the service's token. So several worker processes
accept each other's sessions, a restart ends none, and a changed token ends all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import scrypt, sha256
from secrets import token_urlsafe
from time import time
from typing import Any

from itsdangerous import BadSignature, TimestampSigner, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from tuner.api.attempts import SESSION_S, WriteToken
from tuner.api.guard import client_of
from tuner.api.pages.site import Flash, Visitor
from tuner.errors import UsageError


@dataclass(frozen=True)
class SessionSettings:
    """Lifetimes."""

    session_s: int = SESSION_S
    """Life of a session, in seconds from the sign-in."""
    form_s: int = 3600
    """Age above which a form is stale, in seconds."""
    flash_s: int = 60
    """Time within which the outcome of an action is shown, in seconds."""


SETTINGS = SessionSettings()


class NotAllowed(UsageError):
    """A form is not taken from this person, or not from the site that sends it."""

    http_status = 403


class StaleForm(NotAllowed):
    """A form of this session is too old. A fresh one may be offered."""


class Sessions:
    """Sessions of one service.

    Args:
        token: the service's token; without a text, signing in is refused.
        clock: returns seconds since 1970.
    """

    def __init__(
        self, token: WriteToken, settings: SessionSettings = SETTINGS, clock: Callable[[], float] = time
    ) -> None:
        self._checked, self._token, self._settings, self._clock = token, token.text, settings, clock

    @property
    def is_open(self) -> bool:
        """True if the service has a token, with which a person can sign in."""
        return self._token is not None

    def visitor(self, request: Request, here: str) -> Visitor:
        """Return the person of a request.

        Args:
            here: address of the page, below the service's root.
        """
        session = self._session(request)
        if session is None:
            return Visitor(may_sign_in=self.is_open, here=here)
        flash = self._shown_flash(session, request)
        return Visitor(lambda action: self._sign("form", [session, action]), True, here, flash)

    def sign_in(self, given: str, request: Request, response: Response) -> None:
        """Begin a session with a response.

        Raises:
            NotAllowed: the token is not that of the service, or it has none.
            TooManyAttempts: the client sent too many wrong ones.
        """
        if self._token is None:
            raise NotAllowed("nobody can sign in: the service was started without TUNER_TOKEN")
        if not self._checked.accepts(given.encode("utf-8", "replace"), client_of(request.scope)):
            raise NotAllowed("that is not the token of this service")
        self._set(request, response, self._name, self._sign("session", token_urlsafe(16)), self._settings.session_s)

    def sign_out(self, response: Response) -> None:
        """End the session in this browser."""
        response.delete_cookie(self._name, httponly=True, samesite="strict")

    def show(self, flash: Flash, request: Request, response: Response) -> None:
        """Have the next page of this session show the outcome of an action, once."""
        signed = self._sign("flash", [self._session(request), flash.text[:_LONGEST_FLASH], flash.kind])
        self._set(request, response, self._flash_name, signed, self._settings.flash_s)

    def forget_flash(self, request: Request, response: Response) -> None:
        """Remove the outcome of an action from the browser, now that it was shown."""
        if self._flash_name in request.cookies:
            response.delete_cookie(self._flash_name, httponly=True, samesite="strict")

    def check(self, action: str, form: Mapping[str, str], request: Request) -> None:
        """Check that a form was sent by this session and from a page of this service.

        Raises:
            StaleForm: it is of this session, and too old.
            NotAllowed: it is not of this session, or there is none.
        """
        if self._token is None:
            raise NotAllowed("nothing can be changed here: the service was started without TUNER_TOKEN")
        session = self._session(request)
        if session is None:
            raise NotAllowed("this needs a session: sign in and try again")
        try:
            signed, at = self._signer("form").loads(form.get(FORM_TOKEN, ""), return_timestamp=True)
        except BadSignature:
            signed, at = None, None
        if signed != [session, action] or at is None:
            raise NotAllowed("this form is not one of your session: go back, reload the page and try again")
        if self._clock() - at.timestamp() > self._settings.form_s:
            raise StaleForm("this form has been open for too long; nothing was changed")

    def _session(self, request: Request) -> str | None:
        """Return the id of the session of a request, or None."""
        if self._token is None or (cookie := request.cookies.get(self._name)) is None:
            return None
        try:
            return str(self._signer("session").loads(cookie, max_age=self._settings.session_s))
        except BadSignature:
            return None

    def _shown_flash(self, session: str, request: Request) -> Flash | None:
        """Return the outcome of an action of a session that a page shows."""
        if (cookie := request.cookies.get(self._flash_name)) is None:
            return None
        try:
            of, text, kind = self._signer("flash").loads(cookie, max_age=self._settings.flash_s)
        except BadSignature:
            return None
        return Flash(text, kind) if of == session else None

    @cached_property
    def _key(self) -> bytes:
        return _key_of(self._token or "")

    @cached_property
    def _name(self) -> str:
        """Name of the cookie. It differs by the token, since all services of one host share their cookies."""
        return f"tuner-session-{sha256(b'name' + self._key).hexdigest()[:8]}" if self._token else "tuner-session"

    @property
    def _flash_name(self) -> str:
        return self._name.replace("session", "flash")

    def _sign(self, purpose: str, value: Any) -> str:
        signed = self._signer(purpose).dumps(value)
        return signed.decode() if isinstance(signed, bytes) else str(signed)

    def _signer(self, purpose: str) -> URLSafeTimedSerializer:
        clock = self._clock

        class Signer(TimestampSigner):
            def get_timestamp(self) -> int:
                return int(clock())

        how = {"key_derivation": "hmac", "digest_method": sha256}
        return URLSafeTimedSerializer(self._key, salt=f"tuner {purpose}", signer=Signer, signer_kwargs=how)

    @staticmethod
    def _set(request: Request, response: Response, name: str, value: str, seconds: int) -> None:
        # Behind a proxy that ends TLS, only the browser knows; the origin that it states was checked.
        is_secure = "https" in (request.url.scheme, request.headers.get("origin", "").partition(":")[0])
        response.set_cookie(name, value, seconds, httponly=True, samesite="strict", secure=is_secure)


FORM_TOKEN, BACK = ":token", ":back"
"""Names in a form that are no dim and no attribute: they hold a colon."""
_LONGEST_FLASH = 300
"""Characters of an outcome. A browser drops a cookie of more than 4,096 bytes."""
_PORTS = {"http": ":80", "https": ":443"}
"""Ports that a browser leaves out, by scheme."""


@lru_cache(16)
def _key_of(token: str) -> bytes:
    """Return the key that follows from a token. Slow, so that a signature does not help to guess the token."""
    return scrypt(token.encode(), salt=b"sessions of triton-tuner", n=2**14, r=8, p=1, dklen=32)


def check_origin(request: Request) -> None:
    """Check that a form was sent by a page of this service, as far as the browser says.

    Raises:
        NotAllowed: another site sent it.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is None:
        return  # not a browser; the form's token is checked in any case
    if site == "same-origin" or (site is None and _is_origin(origin or "", request.headers.get("host", ""))):
        return
    raise NotAllowed("a form is taken from a page of this service, and another site sent this one; nothing was changed")


def _is_origin(origin: str, host: str) -> bool:
    """Return whether an origin, such as `https://tuner.example`, is a host as a request names it.

    The scheme is not compared: behind a proxy that ends TLS, the service does not know it. A proxy may add the port.
    """
    scheme, _, given = origin.lower().partition("://")
    port = _PORTS.get(scheme)
    return port is not None and bool(given) and given.removesuffix(port) == host.lower().removesuffix(port)
