"""oidc-provider-mock, a provider that says what a test tells it, for the stories beside this file.

Arguments: the port, and the algorithm by which it signs. It makes a new key at each start and keeps it in memory.
"""

import sys

from oidc_provider_mock import _app
from oidc_provider_mock.__main__ import run

port, _app._JWS_ALG = sys.argv[1:]
run(["--port", port, "--token-max-age", "300"])
