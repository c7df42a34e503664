package mutation

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"docstore/internal/crashtest"
)

// mutation is a bug and the tests that have to notice it.
type mutation struct {
	name     string
	file     string // below the module's root
	old, new string // old is there once
	pkg, run string
}

var mutations = []mutation{
	{
		name: "the log is not synced", file: "wal/writer.go",
		old: "err = w.file.Sync(through) // Append may run concurrently", new: "err = nil",
		pkg: "./wal", run: "TestRandomCrashes",
	},
	{
		name: "a record's checksum is not compared", file: "wal/reader.go",
		old: "order.Uint32(b[recordCRCAt:]); got != want {", new: "order.Uint32(b[recordCRCAt:]); got != want && got == 0 {",
		pkg: "./wal", run: "Flip|Byte|Damage|Crash",
	},
	{
		name: "a record is not bound to its log", file: "wal/format.go",
		old: "uint32 { return checksum.Of(id[:], owner) }", new: "uint32 { return 0 }",
		pkg: "./wal", run: "TestReusedFilePowerCut",
	},
	{
		name: "a reader does not notice that a log is written over", file: "lsm/recover.go",
		old: "; gone != nil {\n", new: "; gone != nil && r.db == nil {\n",
		pkg: "./lsm", run: "WhileLogIsReused",
	},
	{
		name: "the size of a memtable counts slots that its keys do not need", file: "lsm/versionmap.go",
		old: "slotBytes<<m.needed", new: "slotBytes<<(m.needed+6)",
		pkg: "./lsm", run: "TestBudgetModel",
	},
	{
		name: "the directory of the logs is not synced", file: "lsm/log.go",
		old: "if err := db.env.fs.SyncDir(db.env.dir); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "a table is not synced before the manifest names it", file: "lsm/table_writer.go",
		old: "if err := w.file.Sync(); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "the directory is not synced before the manifest names a table", file: "lsm/flush.go",
		old: "	err := db.env.fs.SyncDir(db.env.dir)\n	var t *table", new: "	var err error\n	var t *table",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "a file is renamed into its place before its bytes are durable", file: "internal/vfs/atomicfile.go",
		old: "err = f.Sync()\n", new: "err = nil\n",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "the name of a replaced file is not made durable", file: "internal/vfs/atomicfile.go",
		old: "return fsys.SyncDir(filepath.Dir(name))", new: "_ = filepath.Dir\n	return nil",
		pkg: "./lsm", run: "TestCrash$/power",
	},
	{
		name: "a block's checksum is not compared", file: "lsm/block.go",
		old: "return order.Uint32(b.data) == checksum.Update(seed, b.head()[4:])", new: "return true",
		pkg: "./lsm", run: "Flip|Byte|Damage|Corrupt",
	},
	{
		name: "replay goes on behind a gap in the sequence", file: "lsm/recover.go",
		old: "		return errGap\n", new: "		db.visible.Store(sequence - 1)\n",
		pkg: "./lsm", run: "TestCrash$/process",
	},
	{
		name: "a filter page's checksum is not compared", file: "bloom/filter.go",
		old: "if got := checksum.Of(b); got != e.crc {", new: "if got := checksum.Of(b); got != e.crc && got == 0 {",
		pkg: "./bloom", run: "Damage|Corrupt|Flip",
	},
	{
		name: "a block of the queue is marked before it is durable", file: "queue/segmentwriter.go",
		old: "	if err := s.file.SyncData(); err != nil {\n		return err\n	}\n	s.unmarked, s.started", new: "	s.unmarked, s.started",
		pkg: "./queue", run: "TestCrashAtEveryOperation|TestCrashWhileFlushes",
	},
	{
		name: "the new name of a sealed segment is not made durable", file: "queue/segmentwriter.go",
		old: "		return err\n	}\n	return fsys.SyncDir(dir)\n}", new: "		return err\n	}\n	return nil\n}",
		pkg: "./queue", run: "TestCrashAtEveryOperation",
	},
	{
		name: "a segment whose sync has failed is sealed as it is in memory", file: "queue/writer_recover.go",
		old: "if err := s.writeAgain(file, max(w.next-markBytes, s.header.firstFrame())); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./queue", run: "TestPowerLossBehindASegmentWhoseSyncFailed",
	},
	{
		name: "a log of an earlier process is taken to be durable", file: "lsm/log.go",
		old: "		return errOldLog\n", new: "		logs = slices.DeleteFunc(logs, func(l *logFile) bool { return l.writer == nil })\n",
		pkg: "./lsm", run: "TestPowerLossBehindALogOfAnEarlierProcess",
	},
	{
		name: "orphans go before it is durable that they are some", file: "lsm/open.go",
		old: "	if err := db.env.fs.SyncDir(db.env.dir); err != nil {", new: "	if err := error(nil); err != nil {",
		pkg: "./lsm", run: "TestPowerLossBehindAnOpenAfterAKill",
	},
	{
		name: "what a rewrite stands for goes before the rewrite's name is durable", file: "queue/compact.go",
		old: "	if err := fsys.SyncDir(dir); err != nil {", new: "	if err := error(nil); err != nil {",
		pkg: "./queue", run: "TestCompactCrash$",
	},
	{
		name: "a document's checksum is not compared", file: "queue/fetch.go",
		old: "stored); got != l.crc {", new: "stored); got != l.crc && got == 0 {",
		pkg: "./queue", run: "Flip|Byte|Damage|Corrupt",
	},
	{
		name: "a block table's checksum is not compared", file: "queue/block.go",
		old: "if got := checksum.Update(0, b.bytes[4:]); got != h.crc {", new: "if got := checksum.Update(0, b.bytes[4:]); got != h.crc && got == 0 {",
		pkg: "./queue", run: "Flip|Byte|Damage|Corrupt",
	},
	{
		name: "a fetch does not compare the id", file: "queue/fetch.go",
		old: "case q.id != nil && !bytes.Equal(q.id, id):", new: "case q.id != nil && !bytes.Equal(id, id):",
		pkg: "./queue", run: "TestForeignAndForkedSegments|TestSetAside|TestStoredForm",
	},
	{
		name: "a fetch reads an older file although a rewrite cannot be verified", file: "queue/fetch_document.go",
		old: "			if !hasEntry {\n				break", new: "			if false && !hasEntry {\n				break",
		pkg: "./queue", run: "TestCompactPartialReplica",
	},
	{
		name: "the position is stored before the entries that it covers", file: "docservice/tail.go",
		old: "		err = b.batch.Set(positionKey, b.buffer)\n	}\n", new: "		err = b.follower.index.Set(positionKey, b.buffer)\n	}\n",
		pkg: "./docservice", run: "TestCrash|TestFault",
	},
	{
		name: "files of another queue are read as those of the served one", file: "docservice/store.go",
		old: "		s.queue.Bind(p.Queue)\n", new: "",
		pkg: "./docservice", run: "TestAnotherQueueOverwritesTheOneServed",
	},
	{
		name: "a segment is recorded as sound before it is durable", file: "docservice/verified.go",
		old: "found.durable, found.syncErr = syncFile(v.fs, f.path)", new: "found.durable = true",
		pkg: "./docservice", run: "TestPowerLossAfterVerification",
	},
	{
		name: "the scrub of the index reads and does not verify", file: "lsm/scrub.go",
		old: "		err = db.checkTable(t, false, rest)\n", new: "		err = rest(int64(len(t.data)))\n",
		pkg: "./lsm", run: "TestScrubFindsDamageBeneathAnOpenStore",
	},
	{
		name: "a slot is given out twice", file: "boxcarrpc/core/board.go",
		old: "	b.words[number/64] |= 1 << (number % 64)\n", new: "",
		pkg: "./boxcarrpc/core", run: "Board",
	},
	{
		name: "other hosts are served in plain text", file: "boxcarrpc/security.go",
		old: "	if s.tls != nil || s.options.Insecure || isLocal(l.Addr()) {", new: "	if s != nil || isLocal(l.Addr()) {",
		pkg: "./boxcarrpc", run: "TestPlainTextIsForThisHost",
	},
	{
		name: "a token is sent in plain text", file: "boxcarrpc/security.go",
		old: "	case token != \"\":\n		return nil", new: "	case token == \"never\":\n		return nil",
		pkg: "./boxcarrpc", run: "TestPlainTextIsForThisHost",
	},
	{
		name: "a client whose token was taken back stays", file: "boxcarrpc/server_turn.go",
		old: "			if !c.enforceAuth(c.turn.clock) {", new: "			if false && !c.enforceAuth(c.turn.clock) {",
		pkg: "./boxcarrpc", run: "TestRevokedTokenEndsConnections",
	},
	{
		name: "streams are not authorised", file: "boxcarrpc/security.go",
		old: "			return denied(err)\n", new: "			_ = denied(err)\n",
		pkg: "./boxcarrpc", run: "TestAuthorize",
	},
	{
		name: "a client needs no certificate", file: "boxcarrpc/credentials/tls.go",
		old: "tls.RequireAndVerifyClientCert", new: "tls.VerifyClientCertIfGiven",
		pkg: "./boxcarrpc/credentials", run: "TestClientCertificateRequirement",
	},
	{
		name: "part of a token will do", file: "boxcarrpc/credentials/tokens.go",
		old: "subtle.ConstantTimeCompare(entries[i].sum[:], sum[:])", new: "subtle.ConstantTimeCompare(entries[i].sum[:0], sum[:0])",
		pkg: "./boxcarrpc/credentials", run: "TestTokensOfAFile",
	},
	{
		name: "the gRPC listener asks for no proof", file: "cmd/docserviced/security.go",
		old: "	if k.tokens == nil {\n		return client, nil", new: "	if k != nil {\n		return client, nil",
		pkg: "./cmd/docserviced", run: "TestDaemonRequiresCredentials",
	},
}

// TestMutations wants each bug to be caught.
func TestMutations(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	for _, m := range slices.Concat(mutations, boxcarMutations) {
		t.Run(m.name, func(t *testing.T) {
			m.mustBeCaught(t, root)
		})
	}
}

func (m *mutation) mustBeCaught(t *testing.T, root string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(m.file))
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), m.old), "%s has changed: bring the mutation up to date", m.file)
	changed := filepath.Join(t.TempDir(), "changed.go")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	require.NoError(t, err)
	overlayFile := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(overlayFile, overlay, 0o600))

	command := exec.Command("go", "test", "-overlay", overlayFile, "-vet=off", "-count=1", "-failfast", "-timeout", "10m", "-run", m.run, m.pkg)
	command.Dir = root
	command.Env = append(os.Environ(), crashtest.SoakVariable+"=1") // a share of the crashes catches it now and then only
	output, err := command.CombinedOutput()
	require.NotContains(t, string(output), "[build failed]")
	require.NotContains(t, string(output), "no tests to run")
	require.Error(t, err, "%s passes in spite of the bug:\n%s", m.run, output)
	require.Contains(t, string(output), "FAIL")
}
