//! Step 7 of 7, tests: name servers that do not answer, that deny, and that answer with addresses inside.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record};
use tokio::net::UdpSocket;

use super::*;
use crate::allowed::{Allowed, Names, Refused, Tenant, Transport};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// A name server on this machine. It never answers for names that begin with `slow`, and has no others than `fine` and
/// `mixed`, which has a public IPv4 address, and an IPv6 address that is not.
#[derive(Clone)]
struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: socket.local_addr().unwrap(), asked: Arc::default() };
        let asked = server.asked.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 4_096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let query = Message::from_vec(&buffer[..length]).unwrap();
                asked.lock().unwrap().push(query.queries[0].name().to_utf8());
                if let Some(answer) = answer(query) {
                    socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
                }
            }
        });
        server
    }

    fn resolver(&self) -> Resolver {
        Resolver::new(vec![self.address])
    }

    /// The different names that it was asked for.
    fn asked(&self) -> BTreeSet<String> {
        self.asked.lock().unwrap().iter().cloned().collect()
    }

    async fn until_asked(&self, names: usize) {
        let waiting = async {
            while self.asked().len() < names {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("enough names were asked for");
    }
}

fn answer(query: Message) -> Option<Message> {
    let asked = query.queries[0].clone();
    let name = asked.name().to_utf8();
    let mut answer = query.into_response();
    let data = match (name.split('.').next()?, asked.query_type()) {
        ("slow", _) => return None,
        ("fine" | "mixed", RecordType::A) => RData::A(PUBLIC.into()),
        ("mixed", RecordType::AAAA) => RData::AAAA(Ipv6Addr::LOCALHOST.into()),
        ("fine", _) => return Some(answer),
        _ => {
            answer.metadata.response_code = ResponseCode::NXDomain;
            return Some(answer);
        }
    };
    answer.add_answer(Record::from_rdata(asked.name().clone(), 60, data));
    Some(answer)
}

/// The lookups of one team wait for one another, and never those of another team.
#[tokio::test]
async fn slow_lookups_stop_no_other_team() {
    let server = NameServer::start().await;
    let resolver = server.resolver();
    let slow: Vec<_> = (0..LOOKUPS_OF_A_TEAM * 3)
        .map(|nth| {
            let resolver = resolver.clone();
            tokio::spawn(async move { resolver.find_addresses(Some(1), &format!("slow.{nth}.example")).await })
        })
        .collect();
    server.until_asked(LOOKUPS_OF_A_TEAM).await;
    assert_eq!(resolver.find_addresses(Some(2), "fine.example").await, Ok(vec![PUBLIC.into()]));
    assert_eq!(server.asked().iter().filter(|name| name.starts_with("slow")).count(), LOOKUPS_OF_A_TEAM);
    assert!(slow.iter().all(|lookup| !lookup.is_finished()), "each of them still waits");
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A name server that does not answer is not asked again at once, and neither is one that denies.
#[tokio::test]
async fn failures_are_kept() {
    let server = NameServer::start().await;
    let resolver = server.resolver();
    for (host, error) in [
        ("slow.example", LookupError::NoAnswer("slow.example".to_owned())),
        ("missing.example", LookupError::NoAddress("missing.example".to_owned())),
    ] {
        assert!(!resolver.is_known(host).await);
        assert_eq!(resolver.find_addresses(Some(1), host).await, Err(error.clone()));
        let asked = server.asked.lock().unwrap().len();
        assert!(resolver.is_known(host).await);
        assert_eq!(resolver.find_addresses(Some(1), host).await, Err(error));
        assert_eq!(server.asked.lock().unwrap().len(), asked, "{host}");
    }
}

#[tokio::test]
async fn addresses_of_both_families_are_checked() {
    let server = NameServer::start().await;
    let allowed = Allowed::default().with_names(Names::Resolver(server.resolver()));
    let tenant = Tenant { team_id: Some(1), hosts: &[] };
    allowed.check_now(&"https://fine.example/".parse().unwrap(), tenant).await.unwrap();
    let refused = allowed.check_now(&"https://mixed.example/".parse().unwrap(), tenant).await.unwrap_err();
    assert_eq!(refused.to_string(), "mixed.example is not a public address; an operator can allow its network");
    assert!(allowed.find_addresses(Some(1), "mixed.example", Transport::Encrypted).await.is_err());
    let found = allowed.find_addresses(Some(1), "fine.example", Transport::Encrypted).await;
    assert_eq!(found.unwrap(), [IpAddr::from(PUBLIC)]);
}

/// A name of /etc/hosts is not sent to a name server, which would have another address for it.
#[tokio::test]
async fn listed_names_are_not_asked_for() {
    let server = NameServer::start().await;
    let resolver = server.resolver();
    let mut hosts = Hosts::default();
    hosts.read_hosts_conf("192.0.2.1 fine.example other\n2001:db8::1 fine.example\n".as_bytes()).unwrap();
    let system = resolver.system().unwrap();
    *resolver.0.system.lock().unwrap() = Some(System { hosts: Arc::new(hosts), ..system });
    let listed: Vec<IpAddr> = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap()).into();
    assert_eq!(resolver.find_addresses(Some(1), "Fine.example").await, Ok(listed));
    assert_eq!(server.asked(), BTreeSet::new());
}

/// What is sent unencrypted stays in networks that an operator allows, unless he permits more.
#[tokio::test]
async fn http_leads_to_allowed_networks_only() {
    let server = NameServer::start().await;
    let names = || Names::Resolver(server.resolver());
    let tenant = Tenant { team_id: Some(1), hosts: &[] };
    let loopback: Vec<ipnet::IpNet> = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    let strict = Allowed::new(loopback.clone()).with_names(names());
    let open = Allowed::new(loopback).with_names(names()).with_http(true);
    for (url, is_inside) in [
        ("http://127.0.0.1:8080/", true),
        ("http://localhost:8080/", true),
        ("http://fine.example/", false),
        ("http://missing.example/", false),
        ("http://93.184.216.34/", false),
    ] {
        let url: url::Url = url.parse().unwrap();
        let expected = if is_inside { Ok(()) } else { Err(Refused::Http) };
        assert_eq!(strict.check_now(&url, tenant).await, expected, "{url}");
        assert_eq!(open.check_now(&url, tenant).await, Ok(()), "{url}");
        // Each send asks again, because a name may lead elsewhere by then.
        let host = url.host_str().unwrap();
        let is_there = host != "missing.example";
        for (allowed, transport, is_sent) in [
            (&strict, Transport::ClearText, is_inside),
            (&strict, Transport::ExcusedClearText, is_there),
            (&strict, Transport::Encrypted, is_there),
            (&open, Transport::ClearText, is_there),
        ] {
            let found = allowed.find_addresses(Some(1), host, transport).await;
            assert_eq!(found.is_ok(), is_sent, "{url} {transport:?}: {found:?}");
        }
    }
}
