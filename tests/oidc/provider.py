"""Canaille, a real provider of OpenID Connect, with three people, for the tests.

Arguments: the port, a certificate and its key. Its data is in memory. It writes its keys to no file. Each line on stdin is
an address to which the console may send people back. The end of stdin is its end.
"""

import sys
import threading

from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend

port, certificate, key = int(sys.argv[1]), sys.argv[2], sys.argv[3]
signing_key = RSAKey.generate_key(2048, auto_kid=True).as_dict(private=True)
app = create_app(
    {
        "SECRET_KEY": "a secret of a test",
        "SERVER_NAME": f"localhost:{port}",
        "PREFERRED_URL_SCHEME": "https",
        "CANAILLE": {"JAVASCRIPT": False, "HTMX": False, "LOGGING": {"version": 1}},
        # The test signs in without a browser that could keep a nonce.
        "CANAILLE_OIDC": {"ACTIVE_JWKS": [signing_key], "REQUIRE_NONCE": False, "TRUSTED_DOMAINS": ["client.localhost"]},
    }
)


def save(model):
    Backend.instance.save(model)
    return model


with app.app_context():
    people = {
        name: save(
            models.User(
                user_name=name,
                formatted_name=name.title(),
                family_name=name.title(),
                display_name=name,
                emails=[f"{name}@example.com"],
                password="correct horse battery staple",
            )
        )
        for name in ("ann", "bob", "eve")
    }
    save(models.Group(display_name="developers", members=[people["ann"]]))
    save(models.Group(display_name="visitors", members=[people["bob"]]))
    api = models.Client(
        client_id="cronbox",
        client_secret="a secret of the client",
        client_name="cronbox",
        client_uri="https://client.localhost",
        redirect_uris=["https://client.localhost/callback"],
        grant_types=["authorization_code"],
        response_types=["code"],
        scope=["openid", "profile", "email", "groups"],
        token_endpoint_auth_method="client_secret_basic",
        # Of several algorithms, Canaille picks RS512 for this key.
        id_token_signed_response_alg="RS256",
    )
    # Its domain is not trusted: Canaille asks a person before it gives the console anything.
    console = models.Client(
        client_id="cronbox-console",
        client_secret="a-secret-of-the-console",
        client_name="The console of cronbox",
        client_uri="https://cronbox.example",
        grant_types=["authorization_code"],
        response_types=["code"],
        scope=["openid", "profile", "email", "groups"],
        token_endpoint_auth_method="client_secret_basic",
        id_token_signed_response_alg="RS256",
    )
    for client in (api, console):
        save(client)
        client.audience = [client]
        save(client)

server = make_server("127.0.0.1", port, app, threaded=True, ssl_context=(certificate, key))
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    with app.app_context():
        console = Backend.instance.get(models.Client, client_id="cronbox-console")
        console.redirect_uris = [*(console.redirect_uris or []), line.strip()]
        save(console)
    print("registered", flush=True)
