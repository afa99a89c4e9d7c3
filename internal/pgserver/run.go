package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

// run starts the postmaster, again if it ends at once for a reason that passes: see passes.
func (s *Server) run(ctx context.Context) error {
	unclean := exists(filepath.Join(dataDir(s.dir), "postmaster.pid"))
	for attempt := 1; ; attempt++ {
		// A port that this server had before is kept, so that pools find it again.
		port := s.port
		if port == 0 {
			var err error
			if port, err = freePort(); err != nil {
				return err
			}
		}
		post, err := startPostmaster(ctx, s, port)
		if err == nil {
			s.mu.Lock()
			s.post, s.port = post, port
			s.mu.Unlock()
			s.log.DebugContext(ctx, "PostgreSQL runs", "dir", s.dir, "port", port, "pid", post.pid(), "version", s.bin.version)
			return nil
		}
		if attempt == maxAttempts || !errors.Is(err, errEnded) || !s.passes(ctx, port, unclean) {
			return err
		}
	}
}

const maxAttempts = 20

// passes says whether another start may succeed: on another port, if somebody took this one after it was found free;
// or a little later, which it waits for, if the last postmaster went without its backends. They notice, but until they
// are gone PostgreSQL refuses to start beside them.
func (s *Server) passes(ctx context.Context, port int, unclean bool) bool {
	if s.port == 0 && !portIsFree(port) {
		return true
	}
	if !unclean {
		return false
	}
	select {
	case <-time.After(100 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// freePort asks the kernel for one.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func portIsFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
