package mail

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"net/textproto"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
)

// envelope is a message ready to be sent.
type envelope struct {
	id   string
	from string // address
	to   string // address
	utf8 bool   // the recipient's address needs SMTPUTF8
	raw  []byte // header and body, 7 bit, CRLF
}

// What SMTP allows at most (RFC 5321, 4.5.3.1; a line's CRLF not counted).
const (
	maxLocalPart = 64
	maxAddress   = 254
	maxLine      = 998
)

// What is cut, in characters, so that even one long word fits into a line however it is encoded. Whoever made the name
// too long, the key must arrive.
const (
	maxSubject  = 250
	maxName     = 100
	maxFileName = 60
)

// idForm is an RFC 5322 dot-atom.
var idForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*$")

var headerNameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,60}$`)

// ownHeaders are written from the other fields of a Message, or by servers on the way.
var ownHeaders = map[string]bool{
	"From": true, "Sender": true, "To": true, "Cc": true, "Bcc": true, "Subject": true, "Date": true,
	"Message-Id": true, "Mime-Version": true, "Auto-Submitted": true, "Return-Path": true, "Received": true,
	"Content-Type": true, "Content-Transfer-Encoding": true, "Content-Disposition": true,
}

// compose renders a message. Its errors are the message's own fault and name no address.
func (s *Sender) compose(m Message) (envelope, error) {
	env := envelope{from: s.from.Address}
	// One that is refused is not repeated in the error either: it may be an address.
	if len(m.ID) > 200 || !idForm.MatchString(m.ID) {
		return env, errors.New("the message's ID must be up to 200 letters, digits, - and _, with single dots between")
	}
	env.id = m.ID
	to, err := parseRecipient(m.To)
	if err != nil {
		return env, err
	}
	to.Name = shorten(oneLine(m.ToName), maxName)
	env.to, env.utf8 = to.Address, !isASCII(to.Address)

	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(s.from)
	msg.ToMailAddress(to)
	msg.Subject(shorten(oneLine(m.Subject), maxSubject))
	msg.SetDateWithValue(s.now())
	msg.SetMessageIDWithValue(m.ID + "@" + s.domain)
	// RFC 3834: tells vacation responders not to answer.
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	if err := setHeaders(msg, m.Headers); err != nil {
		return env, err
	}
	if err := setBody(msg, m); err != nil {
		return env, err
	}

	var buf bytes.Buffer
	if _, err := msg.WriteTo(&buf); err != nil {
		return env, errors.New("the message could not be rendered")
	}
	env.raw = buf.Bytes()
	for line := range bytes.Lines(env.raw) {
		if len(bytes.TrimRight(line, "\r\n")) > maxLine {
			return env, fmt.Errorf("a line of the header is longer than %d bytes", maxLine)
		}
	}
	return env, nil
}

func parseRecipient(to string) (*mail.Address, error) {
	if strings.TrimSpace(to) == "" {
		return nil, errors.New("the recipient has no address")
	}
	addr, err := mail.ParseAddress(to)
	if err != nil || strings.ContainsFunc(to, unicode.IsControl) {
		return nil, errors.New("the recipient's address cannot be read")
	}
	if at := strings.LastIndexByte(addr.Address, '@'); at > maxLocalPart || len(addr.Address) > maxAddress {
		return nil, errors.New("the recipient's address is longer than SMTP allows")
	}
	return addr, nil
}

func setHeaders(msg *gomail.Msg, headers map[string]string) error {
	for name, value := range headers {
		if !headerNameForm.MatchString(name) {
			return errors.New("a header's name may have letters, digits and - only")
		}
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
		case ownHeaders[canonical]:
			return fmt.Errorf("the header %s is written by the sender and cannot be given", canonical)
		case canonical == "Reply-To":
			if err := msg.ReplyTo(oneLine(value)); err != nil {
				return errors.New("the Reply-To address cannot be read")
			}
		default:
			msg.SetGenHeader(gomail.Header(name), oneLine(value))
		}
	}
	return nil
}

func setBody(msg *gomail.Msg, m Message) error {
	// The plain text is first: readers show the last part of an alternative that they can (RFC 2046, 5.1.4).
	switch {
	case m.Text != "" && m.HTML != "":
		msg.SetBodyString(gomail.TypeTextPlain, strings.ToValidUTF8(m.Text, "\uFFFD"))
		msg.AddAlternativeString(gomail.TypeTextHTML, strings.ToValidUTF8(m.HTML, "\uFFFD"))
	case m.Text != "":
		msg.SetBodyString(gomail.TypeTextPlain, strings.ToValidUTF8(m.Text, "\uFFFD"))
	case m.HTML != "":
		msg.SetBodyString(gomail.TypeTextHTML, strings.ToValidUTF8(m.HTML, "\uFFFD"))
	default:
		return errors.New("the message has neither text nor HTML")
	}
	for i, a := range m.Attachments {
		name := fileName(a.Name)
		kind, params, err := mime.ParseMediaType(a.ContentType)
		if a.ContentType == "" {
			kind, params, err = "application/octet-stream", nil, nil
		}
		if err != nil || strings.HasPrefix(kind, "multipart/") || strings.HasPrefix(kind, "message/") {
			return fmt.Errorf("attachment %d has no content type of a file", i+1)
		}
		// go-mail would put an encoded word in the file name, which RFC 2047 (5) forbids; mime writes RFC 2231.
		err = msg.AttachReader(name, bytes.NewReader(a.Data), func(f *gomail.File) {
			f.Header.Set("Content-Type", mime.FormatMediaType(kind, params))
			f.Header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
		})
		if err != nil {
			return fmt.Errorf("attachment %d could not be read", i+1)
		}
	}
	return nil
}

// fileName is a name without a path, and without what no file system or header takes.
func fileName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || strings.ContainsRune(`"<>|:*?`, r) || r == utf8.RuneError {
			return '_'
		}
		return r
	}, name)
	name = strings.Trim(name, " .")
	if name == "" {
		return "attachment"
	}
	return shorten(name, maxFileName)
}

// oneLine makes text fit for a header: whatever could end the line, and every run of white space, becomes one space.
// A run is also a fault of its own: folded, it can leave a line of nothing but spaces, which RFC 5322 forbids.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

func shorten(text string, runes int) string {
	if utf8.RuneCountInString(text) <= runes {
		return text
	}
	return string([]rune(text)[:runes-1]) + "…"
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
