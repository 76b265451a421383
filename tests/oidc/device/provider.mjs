// A provider of OpenID Connect that knows the device flow: everybody who signs in is an account of that name.
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'cronbox-cli',
    token_endpoint_auth_method: 'none',
    application_type: 'native',
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
    response_types: [],
    redirect_uris: [],
  }],
  claims: { openid: ['sub'], profile: ['name'], groups: ['groups'] },
  scopes: ['openid', 'offline_access', 'profile', 'groups'],
  conformIdTokenClaims: false,
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, name: id, groups: ['developers'] }) }),
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  ttl: { IdToken: Number(process.argv[3] ?? 3600) },
});
provider.listen(port, '127.0.0.1', () => console.log('ready'));
