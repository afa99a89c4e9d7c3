package pgproxy

import (
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Side is where a message comes from.
type Side string

const (
	Client Side = "client"
	Server Side = "server"
)

// A Message is one that is about to be forwarded.
type Message struct {
	Conn int    // the connection, counted from 1
	PID  uint32 // the server's process; 0 until it has named itself
	From Side
	Type string // as pgproto3 names it: Parse, CommandComplete
	SQL  string // the statement it is about; empty for what is about none, such as a log-in
}

// String tells of the message in one line.
func (m Message) String() string {
	text := strings.Join(strings.Fields(m.SQL), " ")
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return strings.TrimSpace(fmt.Sprintf("%s's %s %s", m.From, m.Type, text))
}

func typeOf(msg pgproto3.Message) string {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", msg), ".")
	return name
}

// asked is what a client has asked for and the server has not answered yet, in that order, so that each message of either
// side can be told to be about a statement.
type asked struct {
	mu         sync.Mutex
	statements map[string]string // SQL by the name of a prepared statement,
	portals    map[string]string // and of a portal
	questions  []question
}

// A question is something that the server answers.
type question struct {
	kind string // the type of the client's message
	sql  string
}

// note takes a message in and returns the statement that it is about.
func (a *asked) note(msg pgproto3.Message) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if sql, asks := a.noteClient(msg); asks {
		a.questions = append(a.questions, question{typeOf(msg), sql})
		return sql
	}
	return a.noteServer(msg)
}

// noteClient reports whether a message is the client's and is answered.
func (a *asked) noteClient(msg pgproto3.Message) (sql string, asks bool) {
	if a.statements == nil {
		a.statements, a.portals = make(map[string]string), make(map[string]string)
	}
	switch m := msg.(type) {
	case *pgproto3.Parse:
		a.statements[m.Name] = m.Query
		return m.Query, true
	case *pgproto3.Bind:
		a.portals[m.DestinationPortal] = a.statements[m.PreparedStatement]
		return a.portals[m.DestinationPortal], true
	case *pgproto3.Describe:
		return a.named(m.ObjectType, m.Name), true
	case *pgproto3.Close:
		return a.named(m.ObjectType, m.Name), true
	case *pgproto3.Execute:
		return a.portals[m.Portal], true
	case *pgproto3.Query:
		return m.String, true
	case *pgproto3.StartupMessage, *pgproto3.Sync:
		return a.last(), true
	}
	return "", false
}

func (a *asked) named(kind byte, name string) string {
	if kind == 'S' {
		return a.statements[name]
	}
	return a.portals[name]
}

// last is what the newest question is about: what a Sync ends.
func (a *asked) last() string {
	if len(a.questions) == 0 {
		return ""
	}
	return a.questions[len(a.questions)-1].sql
}

// noteServer takes an answer in, or what else is sent in the midst of a question: the rows of a COPY.
func (a *asked) noteServer(msg pgproto3.Message) string {
	if len(a.questions) == 0 {
		return ""
	}
	q := a.questions[0]
	answered := false
	switch msg.(type) {
	case *pgproto3.ParseComplete, *pgproto3.BindComplete, *pgproto3.CloseComplete:
		answered = true
	case *pgproto3.RowDescription, *pgproto3.NoData:
		answered = q.kind == "Describe"
	case *pgproto3.CommandComplete, *pgproto3.EmptyQueryResponse, *pgproto3.PortalSuspended:
		answered = q.kind == "Execute"
	case *pgproto3.ErrorResponse:
		// The rest up to the Sync is not done.
		for len(a.questions) > 1 && !a.questions[0].ends() {
			a.questions = a.questions[1:]
		}
	case *pgproto3.ReadyForQuery:
		answered = true
	}
	if answered {
		a.questions = a.questions[1:]
	}
	return q.sql
}

// ends reports whether the server answers a question with ReadyForQuery.
func (q question) ends() bool {
	return q.kind == "Sync" || q.kind == "Query" || q.kind == "StartupMessage"
}

// waits reports whether the server, having sent this message, waits for the client.
func (a *asked) waits(msg pgproto3.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch msg.(type) {
	case *pgproto3.CopyInResponse, *pgproto3.CopyBothResponse, *pgproto3.AuthenticationSASL, *pgproto3.AuthenticationSASLContinue,
		*pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password:
		return true
	}
	return len(a.questions) == 0
}
