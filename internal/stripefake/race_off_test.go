//go:build !race

package stripefake

const raceEnabled = false
