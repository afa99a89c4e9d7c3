package pgtest

import (
	"os"
	"syscall"
)

// memoryDir is a file system in memory, where there is one: Linux has it, and containers often have a small one.
const memoryDir = "/dev/shm"

// roomNeeded is for a few test binaries at once, each with a server and a database of 9 MB for each running test.
const roomNeeded = 4 << 30

// tempDir says where temporary servers go: to memory if it has the room, since a database is 300 small files, and
// making those is most of a test's time on many disks; else, or if TMPDIR is set, to the usual place ("").
func tempDir() string {
	if os.Getenv("TMPDIR") != "" {
		return ""
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err != nil {
		return ""
	}
	if uint64(fs.Bavail)*uint64(fs.Bsize) < roomNeeded {
		return ""
	}
	return memoryDir
}
