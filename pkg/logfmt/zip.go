package logfmt

func notExport(path, name string) string { return "a ZIP archive" }
