"""A static host on this machine: serves a built site as a web host would, its own page for a wrong address included."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path
from typing import Any


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        lost = Path(self.directory) / "404.html"
        if code != 404 or not lost.is_file():
            return super().send_error(code, message, explain)
        self.send_response(404)  # as static hosts do
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(lost.read_bytes())


def serve(folder: Path) -> tuple[http.server.ThreadingHTTPServer, str]:
    """The running server, to be shut down by the caller, and the site's address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}/"
