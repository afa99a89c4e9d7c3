package console_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keytill/keytill/adapter/access"
)

func (s *shop) keys() (n int) {
	s.t.Helper()
	s.must(s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM keytill.keys`).Scan(&n))
	return n
}

func TestWhatIsImportedIsWhatTheDryRunShowed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	b := s.as(access.Admin)
	to := b.upload("more.csv", "id;code\n1;GAME-TWO\n2;GAME-ONE\n3;GAME-TWO\n4; GAME-THREE \n", "sku", "game", "column", "code", "separator", "semicolon",
		"supplier", "Wholesale Ltd").to()
	b.get(to).want(http.StatusOK).has("Import 2 keys", "Nothing was imported yet", "the same key as row 2", "in this pool").lacks("GAME-TWO")
	if n := s.keys(); n != 1 {
		t.Fatalf("a dry run left %d keys", n)
	}
	var ciphertext []byte
	s.must(s.db.QueryRow(t.Context(), `SELECT ciphertext FROM keytill.console_uploads`).Scan(&ciphertext))
	if bytes.Contains(ciphertext, []byte("GAME-TWO")) {
		t.Error("the file lies in the database in the clear")
	}
	s.as(other).get(to).want(http.StatusNotFound)
	b.get(b.post(to+"/confirm", nil).to()).has("Imported.", "more.csv", "Wholesale Ltd")
	if n := s.keys(); n != 3 {
		t.Errorf("%d keys", n)
	}
	b.post(to+"/confirm", nil).want(http.StatusNotFound).has("This upload has ended")
	var left int
	s.must(s.db.QueryRow(t.Context(), `SELECT count(*) FROM keytill.console_uploads`).Scan(&left))
	if left != 0 || s.keys() != 3 {
		t.Errorf("%d uploads left, %d keys", left, s.keys())
	}
}

func TestAnUploadThatWasTamperedWithIsNotImported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game")
	b := s.as(access.Admin)
	one, two := b.upload("a.txt", "A-1\n", "sku", "game").to(), b.upload("b.txt", "B-1\nB-2\n", "sku", "game").to()
	// Another upload's bytes under this one's report.
	_, err := s.db.Exec(t.Context(), `UPDATE keytill.console_uploads SET ciphertext = (SELECT ciphertext FROM keytill.console_uploads WHERE upload_id = $2) WHERE upload_id = $1`,
		filepath.Base(one), filepath.Base(two))
	s.must(err)
	b.post(one+"/confirm", nil).want(http.StatusInternalServerError)
	if s.keys() != 0 {
		t.Error("it was imported")
	}
}

func TestADiscardedUploadIsGone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game")
	b := s.as(access.Admin)
	to := b.upload("a.txt", "A-1\n", "sku", "game").to()
	b.get(b.post(to+"/discard", nil).to()).has("Nothing was imported")
	b.get(to).want(http.StatusNotFound)
	b.post(to+"/confirm", nil).want(http.StatusNotFound)
}

func TestAFileThatCannotBeImportedSaysWhy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE")
	b := s.as(access.Admin)
	b.upload("a.txt", "\n\n", "sku", "game").want(http.StatusUnprocessableEntity).has("holds no key")
	b.upload("a.txt", "ok\nbad\x00\n", "sku", "game").want(http.StatusUnprocessableEntity).has("row 2")
	b.upload("a.csv", "x,y\n1,2\n", "sku", "game", "column", "code").want(http.StatusUnprocessableEntity)
	b.upload("a.txt", "GAME-ONE\n", "sku", "game", "duplicates", "refuse").want(http.StatusConflict)
	b.upload("a.txt", "A\n", "sku", "nothing").want(http.StatusNotFound)
	b.upload("a.txt", "A\n", "sku", "game", "format", "excel").want(http.StatusUnprocessableEntity)
	b.post("/console/imports", nil).want(http.StatusUnprocessableEntity)
	b.upload("big.txt", strings.Repeat("x", 33<<20), "sku", "game").want(http.StatusRequestEntityTooLarge).has("32 MiB")
	if s.keys() != 1 {
		t.Errorf("%d keys", s.keys())
	}
}

func TestABatchIsQuarantinedReleasedAndRecalled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("game", "The Game", "GAME-ONE", "GAME-TWO", "GAME-THREE")
	s.sell("cs_1", "buyer@example.com", "price_game*1@500#li_1")
	b := s.as(access.Admin)
	path := "/console/batch?sku=game&id=" + s.batch()
	act := func(state, reason string) answer {
		return b.post("/console/batch", map[string][]string{"sku": {"game"}, "id": {s.batch()}, "state": {state}, "reason": {reason}})
	}
	b.get(path).want(http.StatusOK).has("The 1 sold key stays with its buyer", "Quarantine")
	act("quarantined", "").want(http.StatusUnprocessableEntity).has("Say why")
	act("nonsense", "x").want(http.StatusUnprocessableEntity)
	b.get(act("quarantined", "the supplier called").to()).has("Done.", "quarantined", "off the shelf")
	b.get(act("imported", "a mistake").to()).has("Done.", "available")
	b.get(act("recalled", "stolen keys").to()).has("recalled", "taken back").lacks("Recall: gone for good")
	act("imported", "again").want(http.StatusConflict).has("stays recalled")
	b.get("/console/audit").has("the supplier called", "a mistake", "stolen keys")
}

// TestNoUploadTouchesTheDisk cannot run beside others: it makes every temporary file fail.
func TestNoUploadTouchesTheDisk(t *testing.T) {
	s := newShop(t)
	s.stock("game", "The Game")
	b := s.as(access.Admin)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("TMPDIR", nowhere)
	if _, err := os.CreateTemp("", "x"); err == nil {
		t.Fatal("temporary files can be made, so this test sees nothing")
	}
	// More than ParseMultipartForm keeps in memory.
	file := strings.Repeat("\n", 12<<20) + "A-1\n"
	b.get(b.upload("a.txt", file, "sku", "game").to()).has("Import 1 key")
}
