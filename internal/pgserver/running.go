package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNotRunning says that no server runs in a data directory.
var ErrNotRunning = errors.New("no PostgreSQL runs in the data directory")

// postmaster.pid is PostgreSQL's own file: its first line is the process, its fourth the port.
const portLine = 3

// Running is the address of the cluster that another process runs in dir, such as a daemon's beside which a command of
// an operator works. It does not own the cluster.
func Running(dir string) (string, error) {
	data := dataDir(dir)
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	if err != nil {
		return "", fmt.Errorf("look for PostgreSQL in %s: %w", dir, err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) <= portLine {
		return "", fmt.Errorf("%s: %w yet: it is starting", dir, ErrNotRunning)
	}
	port, err := strconv.Atoi(strings.TrimSpace(lines[portLine]))
	if err != nil {
		return "", fmt.Errorf("%s: postmaster.pid names no port: %w", dir, err)
	}
	password, err := readPassword(data)
	if err != nil {
		return "", err
	}
	return (&Server{password: password, port: port}).URL(), nil
}
