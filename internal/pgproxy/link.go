package pgproxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// link is one connection on its way through.
type link struct {
	number         int
	client, server net.Conn
	back           *pgproto3.Backend  // reads from the client and writes to it
	front          *pgproto3.Frontend // reads from the server and writes to it
	hook           func(Message) Action

	pid   atomic.Uint32
	deaf  atomic.Bool // the client hears of nothing any more
	asked asked
}

func newLink(number int, client, server net.Conn, hook func(Message) Action) *link {
	return &link{number: number, client: client, server: server, back: pgproto3.NewBackend(client, client),
		front: pgproto3.NewFrontend(server, server), hook: hook}
}

// cut closes both sides, and may be called again.
func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// run carries messages both ways until either side ends or the hook cuts.
func (l *link) run() {
	if !l.greet() || !l.logIn() {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() {
		for l.fromClient() {
		}
		l.hangUp()
	})
	for l.fromServer() {
	}
	l.cut()
	ways.Wait()
}

// greet passes the client's first message on, after it has refused encryption.
func (l *link) greet() bool {
	for {
		first, err := l.back.ReceiveStartupMessage()
		if err != nil {
			return false
		}
		switch first.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := l.client.Write([]byte{'N'}); err != nil {
				return false
			}
		case *pgproto3.CancelRequest:
			// The server says nothing and closes when it has passed the request on.
			if l.pass(Client, first) {
				_, _ = l.server.Read(make([]byte, 1))
			}
			return false
		default:
			return l.pass(Client, first)
		}
	}
}

// logIn passes what is said until the server is content. It goes to and fro in one goroutine, since what a client's answer
// means depends on the question.
func (l *link) logIn() bool {
	for {
		msg, err := l.front.Receive()
		if err != nil || !l.pass(Server, msg) {
			return false
		}
		switch msg.(type) {
		case *pgproto3.AuthenticationOk:
			return true
		case *pgproto3.AuthenticationSASLFinal, *pgproto3.NegotiateProtocolVersion:
			continue // nothing is asked
		case *pgproto3.ErrorResponse:
			return false
		}
		if l.back.SetAuthType(l.front.GetAuthType()) != nil {
			return false
		}
		answer, err := l.back.Receive()
		if err != nil || !l.pass(Client, answer) {
			return false
		}
	}
}

// hangUp ends the client's way. What it sent before is still the server's to do, to its end: a server sees that its client
// is gone only once it reads on.
func (l *link) hangUp() {
	l.deaf.Store(true)
	_ = l.server.SetReadDeadline(time.Now().Add(patience))
	if half, ok := l.server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

func (l *link) fromClient() bool {
	msg, err := l.back.Receive()
	return err == nil && l.pass(Client, msg)
}

func (l *link) fromServer() bool {
	msg, err := l.front.Receive()
	if err != nil {
		return false
	}
	if key, ok := msg.(*pgproto3.BackendKeyData); ok {
		l.pid.Store(key.ProcessID)
	}
	return l.pass(Server, msg)
}

// patience is how long a server may say nothing to a client that hears nothing.
const patience = 2 * time.Second

// pass asks the hook and does as it says. It reports whether the connection goes on.
func (l *link) pass(from Side, msg pgproto3.Message) bool {
	m := Message{Conn: l.number, PID: l.pid.Load(), From: from, Type: typeOf(msg)}
	m.SQL = l.asked.note(msg)
	action := Forward
	if !l.deaf.Load() {
		action = l.hook(m)
	}
	switch action {
	case Cut:
		l.cut()
		return false
	case Shut:
		// Not by way of the Backend, on which the other goroutine may just be sending.
		farewell, _ := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01",
			Message: "terminating connection due to administrator command"}).Encode(nil)
		_, _ = l.client.Write(farewell)
		l.cut()
		return false
	case Unheard:
		l.deaf.Store(true)
		_ = l.server.SetReadDeadline(time.Now().Add(patience))
	}
	if msg, ok := msg.(pgproto3.FrontendMessage); ok && from == Client {
		l.front.Send(msg)
		return l.front.Flush() == nil
	}
	if l.deaf.Load() {
		return !l.asked.waits(msg)
	}
	l.back.Send(msg.(pgproto3.BackendMessage))
	return l.back.Flush() == nil
}
