package lsm

import (
	"fmt"
	"strconv"
	"strings"
)

// The files of a store:
//
//	LOCK              locked by the DB that writes, and names it
//	MANIFEST          which tables and logs make up the store
//	FILTERS           what look-ups have taught about filters; may be missing
//	0000000007.table  a table
//	0000000008.log    a log
//	0000000008.spare  what was a log, for one to come
//
// Tables and logs share one sequence of numbers, none of which is used twice.
const (
	lockName     = "LOCK"
	manifestName = "MANIFEST"
	filtersName  = "FILTERS"

	tableSuffix = ".table"
	logSuffix   = ".log"
	spareSuffix = ".spare"
	tmpSuffix   = ".tmp"

	numberDigits = 10
)

func tableName(number uint64) string { return fmt.Sprintf("%0*d%s", numberDigits, number, tableSuffix) }
func logName(number uint64) string   { return fmt.Sprintf("%0*d%s", numberDigits, number, logSuffix) }
func spareName(number uint64) string { return fmt.Sprintf("%0*d%s", numberDigits, number, spareSuffix) }

// parseName reads what tableName, logName and spareName made.
func parseName(name, suffix string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) < numberDigits {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}
