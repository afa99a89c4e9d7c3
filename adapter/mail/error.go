package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/mail"
	"net/textproto"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Stage says how far a message came.
type Stage string

const (
	// StageMessage: it could not be rendered, or has no usable address; nothing was sent.
	StageMessage Stage = "message"
	// StageConnect: dialling, TLS, greeting, signing in.
	StageConnect Stage = "connect"
	// StageSender: MAIL FROM.
	StageSender Stage = "sender"
	// StageRecipient: RCPT TO.
	StageRecipient Stage = "recipient"
	// StageData: DATA, up to the message's last byte.
	StageData Stage = "data"
	// StageAnswer: the message was sent whole and its answer was awaited.
	StageAnswer Stage = "answer"
)

// Error says why a message was not sent, or is not known to be. It may be logged: no address is in it.
type Error struct {
	ID string // of the Message; empty if it is malformed
	// Permanent: this message will never be taken, do not try again.
	Permanent bool
	// Uncertain: the message was sent whole but no answer came. The recipient may have it; sent again, it has the
	// same Message-ID.
	Uncertain bool
	// Code is the server's: 550, 451. 0 if the server did not answer.
	Code  int
	Stage Stage
	// Answer is the server's words, or ours where it said nothing.
	Answer string

	cause error // the caller's ended context, or nil
}

func (e *Error) Error() string {
	kind := "temporary"
	switch {
	case e.Permanent:
		kind = "permanent"
	case e.Uncertain:
		kind = "perhaps delivered"
	}
	code := ""
	if e.Code != 0 {
		code = fmt.Sprintf("%d ", e.Code)
	}
	id := ""
	if e.ID != "" {
		id = fmt.Sprintf(" %q", e.ID)
	}
	return fmt.Sprintf("mail%s not sent (%s, %s): %s%s", id, e.Stage, kind, code, e.Answer)
}

// Unwrap is the error of the caller's context if that ended the sending, else nil: what go-mail and net return may
// hold addresses.
func (e *Error) Unwrap() error { return e.cause }

// failure turns what stopped a message into an Error. ctx is the caller's, sendCtx the one with the Sender's timeout.
func (s *Sender) failure(ctx, sendCtx context.Context, env envelope, stage Stage, err error) *Error {
	e := &Error{ID: env.id, Stage: stage}
	var answer *textproto.Error
	switch {
	case errors.As(err, &answer):
		e.Code = answer.Code
		e.Answer = clean(answer.Msg, env.to)
		e.Permanent = permanent(stage, answer.Code)
		// Neither yes nor no, as far as RFC 5321 goes.
		e.Uncertain = stage == StageAnswer && answer.Code < 400
	case errors.Is(err, errNeedsUTF8):
		e.Permanent = true
		e.Answer = err.Error()
	case ctx.Err() != nil:
		e.cause = ctx.Err()
		e.Answer = "given up: " + ctx.Err().Error()
		e.Uncertain = stage == StageAnswer
	case sendCtx.Err() != nil, isTimeout(err):
		e.Answer = fmt.Sprintf("no answer within %s", s.timeout.Round(time.Millisecond))
		e.Uncertain = stage == StageAnswer
	default:
		e.Answer = clean(err.Error(), env.to)
		e.Uncertain = stage == StageAnswer
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) && s.server.loopback {
			e.Answer += " (append ?tls=none to the SMTP URL if this is a relay on this machine)"
		}
	}
	return e
}

// permanent: 5xx, as RFC 5321 (4.2.1) has it, when the message is what was refused. Refused before that, or for want
// of signing in (530, 534, 535, 538: RFC 4954, 6), is the operator's matter, and every message's.
func permanent(stage Stage, code int) bool {
	switch {
	case stage == StageConnect || code < 500:
		return false
	case code == 530, code == 534, code == 535, code == 538:
		return false
	}
	return true
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// addressForm finds what looks like an address, however servers wrap it.
var addressForm = regexp.MustCompile(`[^\s<>()\[\]"',;:]+@[^\s<>()\[\]"',;:]+`)

// maxAnswer is long enough for every server's explanation and link.
const maxAnswer = 300

// clean makes a server's words fit for a log line: one line, no addresses, not endless.
func clean(text, to string) string {
	if strings.Contains(text, "@") {
		if to != "" {
			// The recipient first and literally: the pattern does not know local parts that are quoted.
			quoted := strings.Trim(bracketed(to), "<>")
			text = strings.NewReplacer(quoted, "(address)", to, "(address)").Replace(text)
		}
		text = addressForm.ReplaceAllString(text, "(address)")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return shorten(strings.Join(strings.Fields(text), " "), maxAnswer)
}

// bracketed is the address as SMTP commands have it: <local@domain>, the local part quoted where it must be.
func bracketed(addr string) string { return (&mail.Address{Address: addr}).String() }
