"""The stand-alone page: the live view for a browser without JupyterLab."""

from __future__ import annotations

import html
from pathlib import Path

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from workbench.server.handlers import RESOURCE

STATIC = Path(__file__).parent / "static"
_NOT_BUILT = "The front end was not built with this installation: pip install it again with network access."
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Workbench</title>
<link rel="stylesheet" href="{style}">
</head>
<body class="workbench-page">
<div id="workbench" data-base-url="{base_url}">{words}</div>
<script src="{script}" defer></script>
</body>
</html>
"""


class PageHandler(JupyterHandler):
    """`/workbench`."""

    auth_resource = RESOURCE

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    async def get(self) -> None:
        """Respond with the page."""
        # Reading the token sets the XSRF cookie that the page's script sends with every action.
        _ = self.xsrf_token
        built = (STATIC / "view.js").is_file()
        page = _PAGE.format(
            style=html.escape(self.static_url_of("view.css")),
            script=html.escape(self.static_url_of("view.js")),
            base_url=html.escape(self.base_url),
            words="" if built else _NOT_BUILT,
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        await self.finish(page)

    def static_url_of(self, name: str) -> str:
        """Return the URL of a built file, with a version that invalidates what browsers have cached."""
        path = STATIC / name
        version = int(path.stat().st_mtime) if path.is_file() else 0
        return f"{self.base_url}static/workbench/{name}?v={version}"
