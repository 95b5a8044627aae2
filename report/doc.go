// Package report records a run's steps and spans and shows them: console, JSON
// lines, page, trace. The page, the trace and the HTTP server of a live run are in
// packages of their own.
//
// The package handles only names and numbers. It knows nothing about trainers,
// models or configurations, and its parts do not depend on each other.
package report
