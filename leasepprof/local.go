package leasepprof

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Local reports whether a request comes from this machine and asks for it by a
// name of its own, which is what a handler serves without an Authorize function:
//
//   - its remote address is a loopback one;
//   - its Host is a loopback address, localhost or a name under localhost: a web
//     site that has its own name resolve to 127.0.0.1 gets nothing;
//   - it has not been forwarded, as far as its headers tell. A proxy on the same
//     machine that hides that it is one makes the whole world local; behind one,
//     set Authorize.
func Local(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !isLoopback(remote.Addr()) {
		return false
	}
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header[header] != nil {
			return false
		}
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return isLoopback(addr)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func isLoopback(addr netip.Addr) bool { return addr.Unmap().IsLoopback() }
