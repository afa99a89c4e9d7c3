package fulfillment

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// The transaction of an import may run twice; its file must then be read from where it was, or not at all.
func TestAFileIsReadAgainFromWhereItWas(t *testing.T) {
	t.Parallel()
	file := strings.NewReader("header,KEYS")
	_, _ = file.Seek(7, io.SeekStart)
	again := rewinder(file)
	for run := range 3 {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(file); string(text) != "KEYS" || err != nil {
			t.Errorf("run %d reads %q, %v", run, text, err)
		}
	}
	once := rewinder(io.MultiReader(strings.NewReader("KEYS")))
	if err := once(); err != nil {
		t.Errorf("the first run: %v", err)
	}
	if err := once(); !errors.Is(err, errReadOnce) {
		t.Errorf("the second run: %v", err)
	}
}
