package pgserver

import (
	"os"
	"syscall"
)

// shmDir is a file system in memory, where there is one: Linux has it, and containers often have a small one.
const shmDir = "/dev/shm"

// roomNeeded is for a few clusters at once, with a database of 9 MB for each of many running tests.
const roomNeeded = 4 << 30

// MemoryDir is a Config.TempDir for clusters that are made often: in memory if that has the room, since a database is
// 300 small files, and making those is slow on many disks; else, or if TMPDIR is set, the usual place ("").
func MemoryDir() string {
	if os.Getenv("TMPDIR") != "" {
		return ""
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shmDir, &fs); err != nil {
		return ""
	}
	if uint64(fs.Bavail)*uint64(fs.Bsize) < roomNeeded {
		return ""
	}
	return shmDir
}
