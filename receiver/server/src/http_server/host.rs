//! Which host names requests may be for. Other names are refused, which prevents DNS rebinding: a site that makes a browser send
//! requests here under the site's own name.

use std::net::{IpAddr, SocketAddr};

use http::Request;
use http::header::{HOST, ORIGIN};
use sidewinder_config::ListenAddress;

/// Whether a request for a page names this listener. `local` is the connection's own address.
pub(crate) fn names_listener<B>(request: &Request<B>, address: &ListenAddress, local: SocketAddr) -> bool {
    host(request).is_some_and(|host| is_listener(host, address, local.ip()))
}

/// Whether a request that changes something may come from its sender. Programs on other machines know this one by any name, so
/// only connections from this machine have to name it; browsers say so where a web page makes them send a request.
pub(crate) fn may_send<B>(request: &Request<B>, address: &ListenAddress, local: SocketAddr) -> bool {
    let is_local = local.ip().to_canonical().is_loopback();
    !request.headers().contains_key(ORIGIN) && (!is_local || names_listener(request, address, local))
}

/// The host and port that a request names: a header in HTTP/1, a part of the URI in HTTP/2.
fn host<B>(request: &Request<B>) -> Option<&str> {
    let header = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default());
    header.or_else(|| request.uri().authority().map(http::uri::Authority::as_str))
}

fn is_listener(host: &str, address: &ListenAddress, local: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    match name.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical() == local.to_canonical(),
        Err(_) => name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(&address.host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str) -> ListenAddress {
        ListenAddress { host: host.to_owned(), port: 1 }
    }

    #[test]
    fn a_host_is_allowed_by_name_or_by_local_address() {
        let address = address("node-7");
        let local = "10.0.0.7".parse().unwrap();
        for host in ["node-7:8888", "NODE-7", "localhost", "10.0.0.7:8888", "[::ffff:10.0.0.7]:8888"] {
            assert!(is_listener(host, &address, local), "{host}");
        }
        for host in ["10.0.0.8", "node-7.evil.example", "[::1]:8888", "127.0.0.1"] {
            assert!(!is_listener(host, &address, local), "{host}");
        }
    }

    #[test]
    fn senders_on_this_machine_must_name_it_and_web_pages_send_nothing() {
        let may = |local: &str, headers: &[(&str, &str)]| {
            let request = headers
                .iter()
                .fold(Request::post("/"), |request, (name, value)| request.header(*name, *value));
            may_send(&request.body(()).unwrap(), &address(""), local.parse().unwrap())
        };
        for (local, host) in
            [("127.0.0.1:1", "localhost:1"), ("[::1]:1", "[::1]:1"), ("10.0.0.7:1", "view.example")]
        {
            assert!(may(local, &[("host", host)]), "{host}");
            assert!(!may(local, &[("host", host), ("origin", "http://view.example")]), "{host}");
        }
        for local in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(!may(local, &[("host", "evil.example:1")]), "{local}");
            assert!(!may(local, &[]), "{local}");
        }
        // HTTP/2 has the host in the URI.
        let request = |uri| Request::post(uri).body(()).unwrap();
        let local = "127.0.0.1:1".parse().unwrap();
        assert!(may_send(&request("http://127.0.0.1:1/x"), &address(""), local));
        assert!(!may_send(&request("http://evil.example:1/x"), &address(""), local));
    }
}
