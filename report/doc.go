// Package report records a run's steps, warnings and description in the run's folder, and shows its
// progress on the console. Packages below it draw the page and the trace, warn about problems, predict
// the time of a step, export metrics to other programs, and serve a live run over HTTP.
//
// The package handles only names and numbers. It knows nothing about trainers, models or
// configurations.
package report
