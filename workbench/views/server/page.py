"""The stand-alone page: the live view for a browser without JupyterLab."""

from __future__ import annotations

import html
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from jupyter_server.auth.decorator import allow_unauthenticated, authorized
from jupyter_server.base.handlers import JupyterHandler

from workbench.views.server.handlers import RESOURCE

STATIC = Path(__file__).parent / "static"
_NOT_BUILT = (
    "The front end was not built with this installation: pip install it again with network access."
)
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Workbench</title>
<link rel="stylesheet" href="{style}">
</head>
<body class="workbench-page">
<div id="workbench" data-base-url="{base_url}"{lab}>{words}</div>
<script src="{script}" defer></script>
</body>
</html>
"""
# The run of an address is after its #, which only the browser knows.
_LOGIN = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Workbench</title></head>
<body>
<p><a href="{login}">Log in</a></p>
<script>
const login = new URL(document.querySelector("a").href);
const next = login.searchParams.get("next");
if (next === null) login.hash = location.hash;
else login.searchParams.set("next", next + location.hash);
location.replace(login);
</script>
</body>
</html>
"""


class PageHandler(JupyterHandler):
    """`/workbench`."""

    auth_resource = RESOURCE

    @allow_unauthenticated
    async def get(self) -> None:
        """Respond with the page, or send a browser to the login, which leads back to this
        address.
        """
        if self.current_user:
            await self._show()
            return
        self.set_status(401)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        await self.finish(_LOGIN.format(login=html.escape(self._login_url())))

    @authorized(action="read", resource=RESOURCE)
    async def _show(self) -> None:
        # Reading the token sets the XSRF cookie that the page's script sends with every action.
        _ = self.xsrf_token
        words = _NOT_BUILT
        if (STATIC / "view.js").is_file():
            words = ""
        lab = ""
        if "lab" in self.settings:
            lab = f' data-lab-url="{html.escape(self.base_url)}lab/"'
        page = _PAGE.format(
            style=html.escape(self.static_url_of("view.css")),
            script=html.escape(self.static_url_of("view.js")),
            base_url=html.escape(self.base_url),
            lab=lab,
            words=words,
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        await self.finish(page)

    def _login_url(self) -> str:
        """Return where to log in.

        As for tornado, a URL with a query knows itself what comes next.
        """
        login = self.get_login_url()
        if "?" in login:
            return login
        after = self.request.uri
        if urlsplit(login).scheme:  # the login is on another host
            after = self.request.full_url()
        return f"{login}?{urlencode({'next': after})}"

    def static_url_of(self, name: str) -> str:
        """Return the URL of a built file, with a version that invalidates what browsers have
        cached.
        """
        path = STATIC / name
        version = int(path.stat().st_mtime) if path.is_file() else 0
        return f"{self.base_url}static/workbench/{name}?v={version}"
