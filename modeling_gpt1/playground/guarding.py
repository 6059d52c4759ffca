"""Requests that a served page refuses unread: too long a body, or a foreign host name for this machine."""

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .reading import MOST_CHARACTERS

MOST_BYTES = 20 * MOST_CHARACTERS  # room for the texts of all boxes in UTF-8
LOCAL_HOSTS = ["127.0.0.1", "localhost"]


class BodyLimit:
    """Ends a request whose body is longer than any that the page sends, before the body is in memory."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = MOST_BYTES

        async def receive_within() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"This page accepts at most {MOST_BYTES:,} bytes. Shorten the texts.")
            return message

        await self.app(scope, receive_within, send)


def guards(server_name: str) -> list[Middleware]:
    """
    The middleware of a page that is served at this address. A page that only this machine can reach answers only to
    the machine's own names, so that a web page of another host cannot reach it under that host's name.
    """
    local = [Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS)] if server_name in LOCAL_HOSTS else []
    return [*local, Middleware(BodyLimit)]
