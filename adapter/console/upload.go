package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keytill/keytill/inventory"
)

const (
	maxFile  = 32 << 20
	maxField = 4 << 10

	// uploadTime is more than 32 MiB take on a slow line; the daemon's own limit for a request is for small ones.
	uploadTime = 4 * time.Minute
)

// upload tries a file: it leads to a page that says what importing it would do.
func (c *Console) upload(v *visit) error {
	v.takeTime()
	form, err := readUploadForm(v.w, v.r)
	if err != nil {
		return err
	}
	pool, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, form.sku)
	if err != nil {
		return err
	}
	imp := form.settings.importOf(pool, v.who.Name, form.file)
	imp.DryRun = true
	report, _, err := c.Service.Import(v.ctx, imp)
	if err != nil {
		status, text := c.explain(v.ctx, err)
		return c.answerPool(v, status, pool, text)
	}
	id, err := c.stage(v.ctx, v, form.sku, form.settings, report, form.file)
	if err != nil {
		return err
	}
	return v.goTo(Path + "/imports/" + id)
}

// takeTime lets a request take as long as a large file needs. Not every server can: then its own limit holds.
func (v *visit) takeTime() {
	control := http.NewResponseController(v.w)
	deadline := time.Now().Add(uploadTime)
	_, _ = control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)
}

func (s settings) importOf(pool inventory.Pool, actor string, file []byte) inventory.Import {
	return inventory.Import{Pool: pool, File: bytes.NewReader(file), FileName: s.FileName, Supplier: s.Supplier, Actor: actor,
		Format: s.Format, Column: s.Column, UseByColumn: s.UseByColumn, NoHeader: s.NoHeader, Separator: s.Separator,
		Duplicates: s.Duplicates, AcrossPools: s.AcrossPools, Force: s.Force}
}

type uploadForm struct {
	sku      string
	settings settings
	file     []byte
}

// readUploadForm reads the form part by part into memory. ParseMultipartForm would write large files to the disk, in the
// clear.
func readUploadForm(w http.ResponseWriter, r *http.Request) (uploadForm, error) {
	var form uploadForm
	r.Body = http.MaxBytesReader(w, r.Body, maxFile+1<<20)
	parts, err := r.MultipartReader()
	if err != nil {
		return form, fmt.Errorf("%w: %w", errForm, err)
	}
	fields := make(map[string]string)
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = form.read(part, fields)
		}
		if err != nil {
			return form, uploadError(err)
		}
	}
	if form.file == nil || fields["sku"] == "" {
		return form, errForm
	}
	form.sku = fields["sku"]
	return form, form.fill(fields)
}

func (f *uploadForm) read(part *multipart.Part, fields map[string]string) (err error) {
	if part.FormName() != "file" {
		text, err := io.ReadAll(io.LimitReader(part, maxField))
		fields[part.FormName()] = strings.TrimSpace(string(text))
		return err
	}
	f.file, err = io.ReadAll(io.LimitReader(part, maxFile+1))
	if err == nil && len(f.file) > maxFile {
		err = errTooLarge
	}
	f.settings.FileName = filepath.Base(part.FileName())
	return err
}

func uploadError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, errTooLarge):
		return errTooLarge
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", errForm, err)
	}
	return fmt.Errorf("read the upload: %w", err)
}

// fill reads how the file is to be read.
func (f *uploadForm) fill(fields map[string]string) error {
	s := &f.settings
	s.Supplier, s.Column, s.UseByColumn = fields["supplier"], fields["column"], fields["use_by_column"]
	s.NoHeader, s.AcrossPools, s.Force = fields["no_header"] != "", fields["across_pools"] != "", fields["force"] != ""
	switch fields["format"] {
	case "", "lines", "csv":
		s.Format = inventory.Format(fields["format"])
	default:
		return errForm
	}
	switch fields["duplicates"] {
	case "", "skip", "refuse":
		s.Duplicates = inventory.DuplicatePolicy(fields["duplicates"])
	default:
		return errForm
	}
	separator, ok := map[string]rune{"": 0, "comma": ',', "semicolon": ';', "pipe": '|', "tab": '\t'}[fields["separator"]]
	if !ok || !utf8.ValidString(s.FileName) {
		return errForm
	}
	if s.Format == inventory.FormatCSV || s.Format == "" && strings.HasSuffix(strings.ToLower(s.FileName), ".csv") {
		s.Separator = separator
	}
	if s.Format == inventory.FormatLines {
		s.Column, s.UseByColumn, s.NoHeader = "", "", false
	}
	return nil
}

func (c *Console) showUpload(v *visit) error {
	u, err := c.staged(v.ctx, v, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "import", "Import "+u.Settings.FileName, "pools", u)
}

// confirmUpload imports the very bytes that were tried. The upload is taken first: a second click finds nothing.
func (c *Console) confirmUpload(v *visit) error {
	v.takeTime()
	u, file, err := c.take(v.ctx, c.DB, v, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	pool, err := inventory.PoolBySKU(v.ctx, c.DB, v.who.Merchant, u.SKU)
	if err != nil {
		return err
	}
	if _, _, err := c.Service.Import(v.ctx, u.Settings.importOf(pool, v.who.Name, file)); err != nil {
		status, text := c.explain(v.ctx, err)
		return c.answerPool(v, status, pool, text)
	}
	return v.goTo(poolPath(u.SKU) + "&done=imported")
}

func (c *Console) discardUpload(v *visit) error {
	u, _, err := c.take(v.ctx, c.DB, v, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.goTo(poolPath(u.SKU) + "&done=discarded")
}
