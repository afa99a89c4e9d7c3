// Package pgserver runs a PostgreSQL cluster of its own, for the demo, for a daemon that was given no database, and
// for tests.
//
// A cluster is a directory:
//
//	owner.lock     flock held by the process that owns the cluster, its id inside
//	postgres/      PostgreSQL's data directory, with the superuser's password in keytill.password
//	postgres.log   what PostgreSQL said
//	keep           only after KeepRunning: until when, and for whom, a temporary cluster outlives its owner
//
// The lock, and nothing else, says whether a cluster has an owner. It goes with the process, however that ends, so a
// postmaster that runs in a directory whose lock is free has been left behind: the next Start stops it first.
// Temporary clusters lie together in TMPDIR/keytill-pg-UID, and each Start of one removes those that lost their owner.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
)

// Errors that a caller may want to tell apart. Each comes wrapped with the path and with what to do.
var (
	// ErrInUse: another process, or another Server of this one, owns the data directory.
	ErrInUse = errors.New("data directory is in use")
	// ErrNoPostgres: there are no fitting PostgreSQL programs on this machine, and none could be fetched.
	ErrNoPostgres = errors.New("no PostgreSQL 15 or newer")
	// ErrNoAccess: the account that PostgreSQL must run as cannot enter a directory on the way to the data.
	ErrNoAccess = errors.New("directory cannot be entered")
)

// The superuser and the database of every cluster.
const (
	userName     = "keytill"
	databaseName = "keytill"
)

// Config says which cluster to start and how. Its zero value is a temporary cluster that writes safely.
type Config struct {
	// Dir is the cluster's directory, made when missing. "" is a temporary one that Stop removes.
	Dir string
	// TempDir is where temporary clusters lie, all below one directory in it. "" is the system's temporary directory.
	TempDir string
	// Port to listen on; 0 is a free one, which the cluster keeps through restarts of this Server.
	Port int
	// Primary makes a new cluster the copy of a running one, which follows it as its hot standby until it is promoted.
	Primary *Server
	// Settings are PostgreSQL's own (postgresql.conf), and win over those of this package.
	Settings map[string]string
	// Fast gives up safety against a crash of the machine (fsync and the like) for speed.
	Fast bool
	// Label names the program that owns a temporary cluster; see KeepRunning.
	Label string
	// Logger gets what happens; nil is silence.
	Logger *slog.Logger
}

// Server is a running cluster that this process owns.
type Server struct {
	cfg      Config
	log      *slog.Logger
	dir      string
	temp     bool
	bin      binaries
	account  account
	password string
	port     int

	mu    sync.Mutex // guards what follows
	post  *postmaster
	owner *lock // nil once the directory is given up
	kept  bool
}

// Start starts the cluster in cfg.Dir, making it first if need be, and returns when it takes connections.
//
// PostgreSQL's programs come from KEYTILL_PG_BIN, PATH or the usual places of packages, and are fetched when there
// are none; see findBinaries. An existing cluster is run by the major version that made it.
//
// ctx bounds the start alone. The server runs until Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Logger, temp: cfg.Dir == "", port: cfg.Port}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
	if s.temp {
		s.dir, s.owner, err = newTempDir(ctx, s.cfg.TempDir, s.cfg.Label, s.log)
	} else {
		s.dir, s.owner, err = openDir(s.cfg.Dir)
	}
	if err != nil {
		return err
	}

	data := dataDir(s.dir)
	major, err := dataMajor(data)
	if err != nil {
		return err
	}
	if s.bin, err = findBinaries(ctx, major, s.log); err != nil {
		return err
	}
	if s.account, err = accountFor(data); err != nil {
		return err
	}
	if err := s.checkAccess(); err != nil {
		return err
	}
	if err := stopLeftover(ctx, data, s.temp, s.log); err != nil {
		return err
	}
	if major == 0 {
		err = s.create(ctx)
	} else {
		err = s.account.own(data)
	}
	if err != nil {
		return err
	}
	if s.password, err = readPassword(data); err != nil {
		return err
	}
	return s.run(ctx)
}

// checkAccess says what to do about a directory that PostgreSQL's account cannot enter, which depends on whose it is.
func (s *Server) checkAccess() error {
	advice := "choose another --data-dir (such as /var/lib/keytill)"
	if s.temp {
		advice = "set TMPDIR to a directory that everyone can enter"
	}
	if err := s.account.canReach(s.dir, advice); err != nil {
		return err
	}
	return s.account.canReach(s.bin.dir, howToGetPostgres)
}

// create makes the data directory: a copy of the primary for a standby, one of the cached template for a temporary
// cluster, initdb for one that stays.
func (s *Server) create(ctx context.Context) error {
	if s.cfg.Primary != nil {
		return s.copyPrimary(ctx, s.cfg.Primary)
	}
	if s.temp {
		err := copyTemplate(ctx, s.bin, s.account, s.dir)
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.log.WarnContext(ctx, "no copy of the template cluster, making a new one", "error", err)
	}
	return initCluster(ctx, s.bin, s.account, s.dir, s.temp)
}

// URL is the address of the cluster's database for its superuser, with the password: keep it out of logs.
func (s *Server) URL() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(userName, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)),
		Path:     "/" + databaseName,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Dir is the cluster's directory.
func (s *Server) Dir() string { return s.dir }

// Pid is the postmaster's process id, or 0 when it does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.post == nil {
		return 0
	}
	return s.post.pid()
}

// Done is closed when the postmaster that runs now has ended, whatever the reason.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.post == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return s.post.done
}

// Stop ends the server and gives the directory up: open transactions are rolled back, connections closed ("fast
// shutdown"). A temporary cluster is removed. Stopping twice is no error.
func (s *Server) Stop() error {
	s.mu.Lock()
	post, kept := s.post, s.kept
	s.post = nil
	s.mu.Unlock()

	var err error
	if post != nil && !kept {
		sig := syscall.SIGINT
		if s.temp {
			sig = syscall.SIGQUIT // nothing of it is kept, so there is nothing to write out
		}
		err = post.stop(sig)
	}
	return errors.Join(err, s.release())
}

// Kill ends the server as a crash would: nothing is written out, connections break. The cluster stays with this
// Server: Restart brings it back, Stop gives it up.
func (s *Server) Kill() error {
	s.mu.Lock()
	post := s.post
	s.post = nil
	s.mu.Unlock()
	if post == nil {
		return nil
	}
	return post.stop(syscall.SIGQUIT)
}

// Restart starts the cluster again after Kill or a crash, on the port it had, so that a pool reconnects by itself.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	stopped := s.owner == nil
	s.mu.Unlock()
	if stopped {
		return fmt.Errorf("restart PostgreSQL in %s: the server was stopped and its directory given up", s.dir)
	}
	select {
	case <-s.Done():
	default:
		return fmt.Errorf("restart PostgreSQL in %s: it still runs", s.dir)
	}
	if err := stopLeftover(ctx, dataDir(s.dir), true, s.log); err != nil {
		return err
	}
	return s.run(ctx)
}

// release gives up the directory, and removes it if it is temporary and nobody wants to look at it.
func (s *Server) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil {
		return nil
	}
	var err error
	if s.temp && !s.kept {
		err = removeAll(s.dir)
	}
	err = errors.Join(err, s.owner.release())
	s.owner = nil
	return err
}
