//! Step 7 of 7: resolves names without a blocking thread, so that a name server that never answers stops only those who
//! ask it.
//!
//! It reads /etc/hosts and /etc/resolv.conf as the system's resolver does, and again after they have changed. No other
//! source of /etc/nsswitch.conf counts.

#[cfg(test)]
mod name_servers;

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver, system_conf};
use moka::future::Cache;
use tokio::sync::Semaphore;

/// How many names of one team are resolved at once on an instance; further ones wait.
pub const LOOKUPS_OF_A_TEAM: usize = 16;
/// How long the lookup of a name may take, with all its repetitions.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// How long a name server may take to answer, if /etc/resolv.conf names no shorter time.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long a failed lookup is not repeated.
const FAILURE_KEPT: Duration = Duration::from_secs(5);
/// How long an answer is kept at most, whatever its name server permits.
const ANSWER_KEPT: Duration = Duration::from_secs(60);
/// How often the files of the system are compared with what was read.
const FILES_CHECKED: Duration = Duration::from_secs(5);
/// How many names are known at once.
const NAMES_KNOWN: u64 = 10_000;

const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Resolves names, for each team a limited number at once. Clones share what they know.
#[derive(Clone)]
pub struct Resolver(Arc<Parts>);

struct Parts {
    servers: Vec<SocketAddr>,
    system: Mutex<Option<System>>,
    known: Cache<String, Known>,
    teams: Mutex<HashMap<Option<i64>, Arc<Semaphore>>>,
}

/// What the files of the system said when they were read.
#[derive(Clone)]
struct System {
    hosts: Arc<Hosts>,
    resolver: TokioResolver,
    changed: [Option<SystemTime>; 2],
    checked: Instant,
}

/// The result of a lookup.
#[derive(Clone)]
struct Known {
    answer: Result<Vec<IpAddr>, LookupError>,
    until: Instant,
}

/// Why a name has no address now; the text is for the owner of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// Its name servers say so.
    #[error("{0} has no address")]
    NoAddress(String),
    /// No name server answered in time.
    #[error("no name server answered for {0}")]
    NoAnswer(String),
    /// The name servers answered with a failure.
    #[error("the name servers failed for {0}: {1}")]
    Failed(String, String),
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Resolver {
    /// Asks these name servers; without any, those of /etc/resolv.conf.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self(Arc::new(Parts {
            servers,
            system: Mutex::default(),
            known: Cache::builder().max_capacity(NAMES_KNOWN).time_to_live(ANSWER_KEPT).build(),
            teams: Mutex::default(),
        }))
    }

    /// Returns all addresses of a name, IPv4 and IPv6, for a request of this team (`None` = the service itself).
    ///
    /// While the team has [`LOOKUPS_OF_A_TEAM`] lookups in progress it waits; the caller limits that time.
    pub(crate) async fn find_addresses(&self, team_id: Option<i64>, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let host = host.to_ascii_lowercase();
        if let Some(answer) = self.known_answer(&host).await {
            return answer;
        }
        let places = self.places_of(team_id);
        // Unwrap safety: nothing closes the semaphore, and without a place the lookup is only not counted.
        let _place = places.acquire().await.ok();
        // Another request may have asked for the same name meanwhile.
        if let Some(answer) = self.known_answer(&host).await {
            return answer;
        }
        let known = self.look_up(&host).await;
        self.0.known.insert(host, known.clone()).await;
        known.answer
    }

    /// Whether the addresses of a name are known without asking a name server.
    pub(crate) async fn is_known(&self, host: &str) -> bool {
        self.known_answer(&host.to_ascii_lowercase()).await.is_some()
    }

    async fn known_answer(&self, host: &str) -> Option<Result<Vec<IpAddr>, LookupError>> {
        let known = self.0.known.get(host).await?;
        (known.until > Instant::now()).then_some(known.answer)
    }

    async fn look_up(&self, host: &str) -> Known {
        let system = match self.system() {
            Ok(system) => system,
            Err(error) => return Known::failure(LookupError::Failed(host.to_owned(), error.to_string())),
        };
        let listed = system.listed_addresses(host);
        if !listed.is_empty() {
            return Known { answer: Ok(listed), until: Instant::now() };
        }
        match tokio::time::timeout(LOOKUP_LIMIT, system.resolver.lookup_ip(host)).await {
            Ok(Ok(found)) => {
                let addresses: Vec<IpAddr> = found.iter().collect();
                if addresses.is_empty() {
                    return Known::failure(LookupError::NoAddress(host.to_owned()));
                }
                Known { answer: Ok(addresses), until: found.valid_until() }
            }
            Ok(Err(error)) if error.is_no_records_found() => Known::failure(LookupError::NoAddress(host.to_owned())),
            Ok(Err(NetError::Timeout)) | Err(_) => Known::failure(LookupError::NoAnswer(host.to_owned())),
            Ok(Err(error)) => Known::failure(LookupError::Failed(host.to_owned(), error.to_string())),
        }
    }

    /// The places of a team; those of teams without a lookup are forgotten when there are many.
    fn places_of(&self, team_id: Option<i64>) -> Arc<Semaphore> {
        let mut teams = self.0.teams.lock().unwrap_or_else(PoisonError::into_inner);
        if teams.len() > 1_000 {
            teams.retain(|_, places| Arc::strong_count(places) > 1);
        }
        teams.entry(team_id).or_insert_with(|| Arc::new(Semaphore::new(LOOKUPS_OF_A_TEAM))).clone()
    }

    /// What the files say, read again if they have changed.
    fn system(&self) -> Result<System, NetError> {
        let mut kept = self.0.system.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(system) = &mut *kept {
            if system.checked.elapsed() < FILES_CHECKED {
                return Ok(system.clone());
            }
            system.checked = Instant::now();
            if system.changed == last_changes() {
                return Ok(system.clone());
            }
        }
        let read = System::read(&self.0.servers)?;
        *kept = Some(read.clone());
        Ok(read)
    }
}

impl Known {
    fn failure(error: LookupError) -> Self {
        Self { answer: Err(error), until: Instant::now() + FAILURE_KEPT }
    }
}

impl System {
    fn read(servers: &[SocketAddr]) -> Result<Self, NetError> {
        let changed = last_changes();
        let (config, mut options) = match servers {
            // As the system's resolver: without a file the name server is on this machine.
            [] => system_conf::read_system_conf().unwrap_or_else(|_| named(&[([127, 0, 0, 1], 53).into()])),
            servers => named(servers),
        };
        options.timeout = options.timeout.min(ANSWER_LIMIT);
        options.attempts = options.attempts.min(1);
        options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        // `listed_addresses` reads it: a name in it is never asked for elsewhere. Answers are kept above.
        options.use_hosts_file = ResolveHosts::Never;
        options.cache_size = 0;
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options;
        let hosts = Arc::new(Hosts::from_system().unwrap_or_default());
        Ok(Self { hosts, resolver: builder.build()?, changed, checked: Instant::now() })
    }

    /// The addresses of a name in /etc/hosts.
    fn listed_addresses(&self, host: &str) -> Vec<IpAddr> {
        let Ok(name) = Name::from_str_relaxed(host) else { return Vec::new() };
        let of_type = |kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind));
        let found = [RecordType::A, RecordType::AAAA].into_iter().filter_map(of_type);
        found
            .flat_map(|found| found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>())
            .collect()
    }
}

fn named(servers: &[SocketAddr]) -> (ResolverConfig, ResolverOpts) {
    let server = |address: &SocketAddr| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = address.port();
            connection
        });
        NameServerConfig::new(address.ip(), true, connections.into())
    };
    (ResolverConfig::from_name_servers(servers.iter().map(server).collect()), ResolverOpts::default())
}

/// A file without a time is missing.
fn last_changes() -> [Option<SystemTime>; 2] {
    FILES.map(|file| fs::metadata(file).and_then(|metadata| metadata.modified()).ok())
}
