package cli

import (
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
)

// checkWay looks at the way to a database elsewhere. What goes over it is orders and buyers' addresses; keys are encrypted.
func (x *examination) checkWay(db *database) {
	if db.server != nil {
		return
	}
	if problem := wayProblem(db.pool.Config().ConnConfig); problem != "" {
		x.note("database", problem, "put sslmode=verify-full into KEYTILL_DATABASE_URL, with sslrootcert if its certificate is your own")
	}
}

// wayProblem says who could listen, or answer in the database's place; empty if nobody can.
func wayProblem(config *pgx.ConnConfig) string {
	hosts, open, unchecked := []string{config.Host}, config.TLSConfig == nil, false
	unchecked = !open && config.TLSConfig.InsecureSkipVerify && config.TLSConfig.VerifyPeerCertificate == nil
	for _, other := range config.Fallbacks {
		hosts = append(hosts, other.Host)
		open = open || other.TLSConfig == nil
	}
	for _, host := range hosts {
		switch {
		case near(host):
		case open:
			return "the way to it may go unencrypted, so that who is in between reads orders and addresses"
		case unchecked:
			return "its certificate is not checked, so that who is in between can answer in its place"
		}
	}
	return ""
}

// near reports whether a host is this machine.
func near(host string) bool {
	ip := net.ParseIP(host)
	return strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback()
}
