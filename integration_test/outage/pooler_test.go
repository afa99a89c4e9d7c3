package outage_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// serverSessions is how many sessions the pooler has for all its clients: far fewer than the daemons' connections, so that
// each statement or transaction may meet another one.
const serverSessions = 6

// pooler starts a PgBouncer in transaction mode before a database and returns the database's URL through it.
func pooler(t testing.TB, database string) string {
	t.Helper()
	// Debian puts it where only root's PATH leads.
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("no PgBouncer: apt-get install pgbouncer brings it (%v)", err)
	}
	direct, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := direct.User.Password()
	port := freePort(t)
	dir := place(t)
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`, direct.Port(), direct.User.Username(), password, port, serverSessions)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, config)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if os.Geteuid() == 0 { // it refuses to be root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			t.Logf("the end of what PgBouncer said:\n%s", strings.Join(lines[max(0, len(lines)-8):], "\n"))
		}
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for deadline := time.Now().Add(startPatience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not listen: %v", err)
		}
	}
	direct.Host = address
	return direct.String()
}

// emptyDatabase makes a database beside the server's own one, which nobody has migrated, and returns its URL.
func emptyDatabase(t testing.TB, server *pgserver.Server, name string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	address.Path = "/" + name
	return address.String()
}

// Everything that keytill does, it does through a pooler in transaction mode: the schema, commands, imports, the inbox,
// settles, jobs that no notification announces, deliveries, a sweep.
func TestEverythingWorksThroughAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgserver.Config{Fast: true})
	direct := emptyDatabase(t, server, "pooled")
	through := pooler(t, direct)
	wholeFlow(t, direct, through, 13)
}

// wholeFlow goes through all of keytill on an empty database: beside the crowd's business there are a command line and two
// daemons, one sale that nobody tells of, and one that must wait for stock. direct is the same database as the test sees it.
func wholeFlow(t testing.TB, direct, address string, seed uint64) *crowd {
	t.Helper()
	s := newShop(t, direct)
	s.url = address
	s.keytill("", "migrate")
	s.keytill("", "pool", "create", sku, "--name", "Game")
	s.keytill("", "pool", "map", sku, "--price", price)
	s.keytill(keyFile("FIRST", 300), "import", sku, "-")
	first, second := s.serve(address), s.serve(address)
	c := s.gather(300, seed)
	c.visit(first, second)
	c.work(length(60, 2000), judgePatience)

	// Long enough ago for a sweep to look for it.
	lost := &sale{id: "cs_lost", email: "lost@example.com", quantity: 1}
	c.missed(lost)
	s.keytill("", "reconcile", "--since", "24h")
	c.complete(judgePatience, map[string]*sale{lost.id: lost})

	c.goHome()
	c.settleDebts(judgePatience)
	c.complete(judgePatience, c.everything())
	c.outsell()
	first.stop(t)
	second.stop(t)
	c.judge(address, 0)
	for _, line := range []string{"stock", "order show " + lost.id, "findings", "stock rebuild"} {
		s.keytill("", strings.Fields(line)...)
	}
	return c
}

// missed makes a sale of some hours ago of which no event came.
func (c *crowd) missed(s *sale) {
	c.t.Helper()
	c.must(c.record(s, time.Now().Add(-3*time.Hour)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sales = append(c.sales, s)
	c.spare -= s.quantity
}

const (
	rare      = "rare"
	rarePrice = "price_rare"
)

// outsell sells more of something than there is; what waits is served by the next import.
func (c *crowd) outsell() {
	c.t.Helper()
	c.keytill("", "pool", "create", rare, "--name", "Rare")
	c.keytill("", "pool", "map", rare, "--price", rarePrice)
	c.keytill(keyFile("RARE", 1), "import", rare, "-")
	s := &sale{id: "cs_outsold", email: "outsold@example.com", quantity: 3, waits: true}
	c.must(c.record(s, time.Time{}))
	c.sales = append(c.sales, s)
	for _, event := range c.tell(s) {
		c.deliver(c.t.Context(), debt{event, s})
	}
	c.await(judgePatience, "units wait for stock", func(ctx context.Context) (bool, error) {
		waiting, err := c.count(ctx, `SELECT count(*) FROM keytill.fulfilments WHERE state = 'waiting'`)
		return waiting == 2, err
	})
	c.keytill(keyFile("MORE", 2), "import", rare, "-")
	c.complete(judgePatience, map[string]*sale{s.id: s})
}

// keytill runs a command that must do.
func (s *shop) keytill(stdin string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), judgePatience)
	defer cancel()
	if _, err := s.command(ctx, s.url, stdin, args...); err != nil {
		s.t.Fatal(err)
	}
}
