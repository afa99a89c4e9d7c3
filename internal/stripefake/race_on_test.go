//go:build race

package stripefake

// raceEnabled makes the tests of scale smaller: the detector is ten times as
// slow.
const raceEnabled = true
