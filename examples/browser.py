"""A web page of your own that talks with `llamina serve`: one HTML file, without a library or a build step.

    llamina serve smollm2 --cors-origins http://127.0.0.1:8000
    python examples/browser.py

Then open http://127.0.0.1:8000. The page is examples/browser/index.html; this program only hands it to the browser. The
server lets pages of other origins in only if they are listed.
"""

import argparse
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()

    files = partial(SimpleHTTPRequestHandler, directory=Path(__file__).parent / "browser")
    with ThreadingHTTPServer(("127.0.0.1", args.port), files) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
