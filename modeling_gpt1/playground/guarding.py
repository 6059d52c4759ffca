"""What a served page refuses before it reads it: bodies that are too long, and other hosts' names for this machine."""

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .reading import MOST_CHARACTERS

MOST_BYTES = 20 * MOST_CHARACTERS  # the texts of all boxes in UTF-8, and some more
LOCAL_HOSTS = ["127.0.0.1", "localhost"]


class BodyLimit:
    """Ends a request whose body is longer than any that the page sends, before it is in memory."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = MOST_BYTES

        async def receive_within() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"This page takes {MOST_BYTES:,} bytes at most. Shorten the texts.")
            return message

        await self.app(scope, receive_within, send)


def guards(server_name: str) -> list[Middleware]:
    """
    What stands before a page that is served at this address. A page of this machine alone answers to its own names, so
    that no page of another host reaches it under that host's name.
    """
    local = [Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS)] if server_name in LOCAL_HOSTS else []
    return [*local, Middleware(BodyLimit)]
