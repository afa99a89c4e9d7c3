package mail

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/smtptest"
)

func TestConnectionIsUsedForSeveralMessages(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	for i := range maxMessages + 1 {
		if _, err := s.Send(t.Context(), message(fmt.Sprintf("d-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if n := srv.Connections(); n != 2 {
		t.Errorf("%d connections for %d messages, want 2", n, maxMessages+1)
	}
}

func TestConnectionsClosedByTheServerWhileIdleAreReplaced(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	if _, err := s.Send(t.Context(), message("d-1")); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	_ = s.idle[0].raw.Close() // as if the server had
	s.mu.Unlock()
	if _, err := s.Send(t.Context(), message("d-2")); err != nil {
		t.Fatal(err)
	}
	if n := srv.Count(); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestManySendersAtOnce(t *testing.T) {
	srv := start(t, smtptest.Options{Security: smtptest.StartTLS, User: "u", Password: "p"})
	s := newSender(t, srv, nil)
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := range 5 {
				if _, err := s.Send(t.Context(), message(fmt.Sprintf("d-%d-%d", worker, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := srv.Count(); n != 100 {
		t.Errorf("%d messages, want 100", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > maxIdle {
		t.Errorf("%d connections are kept, want at most %d", n, maxIdle)
	}
}

func TestClosedSenderKeepsNoConnection(t *testing.T) {
	srv := start(t, smtptest.Options{})
	s := newSender(t, srv, nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(t.Context(), message("d-1")); err != nil {
		t.Fatal(err)
	}
	if n := len(s.idle); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

// A message whose writing is cut short must not be ended by what the client says next: the server would deliver half.
func TestHalfAMessageIsNeverEnded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		r := bufio.NewReader(conn)
		_, _ = io.WriteString(conn, "220 hello\r\n")
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "DATA") {
				_, _ = io.WriteString(conn, "354 go\r\n")
				time.Sleep(600 * time.Millisecond) // longer than the client is patient
				body, _ := io.ReadAll(r)
				received <- body
				return
			}
			_, _ = io.WriteString(conn, "250 ok\r\n")
		}
	}()
	defer func() { _ = listener.Close() }()

	s, err := New(Config{
		URL: "smtp://" + listener.Addr().String(), From: "keys@shop.example", Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := message("d-1")
	// More than the buffers of both ends hold, so that writing stops when nobody reads.
	m.Attachments = []Attachment{{Name: "big", Data: bytes.Repeat([]byte("x"), 20<<20)}}
	if e := sendError(t, s, m); e.Permanent || e.Uncertain || e.Stage != StageData {
		t.Errorf("got %v, want temporary, at data", e)
	}
	if body := <-received; bytes.HasSuffix(body, []byte("\r\n.\r\n")) || bytes.Contains(body, []byte("QUIT")) {
		t.Errorf("the cut message was ended: %q", body[max(0, len(body)-40):])
	}
}
