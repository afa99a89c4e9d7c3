package inventory

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// readSize is the size of a buffer before a file.
const readSize = 64 << 10

var (
	utf8Mark    = []byte("\uFEFF")
	utf16LEMark = []byte{0xff, 0xfe}
	utf16BEMark = []byte{0xfe, 0xff}
)

// decoded is a file's text as UTF-8, without the byte-order mark that says what it was. A file without a mark is passed on
// as it is. What cannot be decoded comes out as bytes that are not UTF-8, so that whoever looks at a row finds them there.
func decoded(file io.Reader) io.Reader {
	in := bufio.NewReaderSize(file, readSize)
	start, _ := in.Peek(len(utf8Mark)) // an error comes again with the next Read
	switch {
	case bytes.Equal(start, utf8Mark):
		_, _ = in.Discard(len(utf8Mark))
	case bytes.HasPrefix(start, utf16LEMark):
		_, _ = in.Discard(len(utf16LEMark))
		return &utf16Reader{in: in, order: binary.LittleEndian}
	case bytes.HasPrefix(start, utf16BEMark):
		_, _ = in.Discard(len(utf16BEMark))
		return &utf16Reader{in: in, order: binary.BigEndian}
	}
	return in
}

// A utf16Reader turns UTF-16 into UTF-8. The decoders of the libraries put U+FFFD where half a surrogate pair stands, which
// a key may really hold; this one puts a byte that is no UTF-8.
type utf16Reader struct {
	in    *bufio.Reader
	order binary.ByteOrder
	out   []byte // decoded and not yet read; begins at the array's start whenever it is filled
	space [readSize]byte
	err   error
}

const notUTF8 = 0xff

// Read decodes.
func (r *utf16Reader) Read(p []byte) (int, error) {
	for len(r.out) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *utf16Reader) fill() {
	r.out = r.space[:0]
	for len(r.out) < len(r.space)-utf8.UTFMax {
		unit, err := r.unit()
		if err != nil {
			r.err = err
			return
		}
		if !utf16.IsSurrogate(rune(unit)) {
			r.out = utf8.AppendRune(r.out, rune(unit))
			continue
		}
		next, err := r.in.Peek(2)
		if errors.Is(err, io.EOF) || err == nil {
			if whole := r.pair(unit, next); whole != utf8.RuneError {
				r.out = utf8.AppendRune(r.out, whole)
				_, _ = r.in.Discard(2)
				continue
			}
			err = nil
		}
		r.out = append(r.out, notUTF8)
		if r.err = err; err != nil {
			return
		}
	}
}

// pair is the character of two surrogates, if they are a pair.
func (r *utf16Reader) pair(first uint16, next []byte) rune {
	if len(next) < 2 {
		return utf8.RuneError
	}
	return utf16.DecodeRune(rune(first), rune(r.order.Uint16(next)))
}

// unit reads two bytes. A single byte at the end cannot be decoded.
func (r *utf16Reader) unit() (uint16, error) {
	var two [2]byte
	_, err := io.ReadFull(r.in, two[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		r.out = append(r.out, notUTF8)
		return 0, io.EOF
	}
	return r.order.Uint16(two[:]), err
}
