// Package e2e proves, in its tests, what package dashboard is in a browser: Chromium, driven through every flow on a
// file with a receiver that speaks HTTPS, and axe-core, which looks for what keeps people out. It is a module of its own
// so that programs that import the library do not get what drives the browser.
//
// The tests need Chromium ("apt-get install chromium", or another by the environment variable CHROMIUM) and what
// package-lock.json pins ("npm ci" in this directory). Where the environment variable CI is set they fail without;
// elsewhere they are skipped.
//
//	go test . -screenshots    # replaces the pictures in docs/dashboard
//	go test . -pictures /tmp  # puts pictures of all pages there, to look at
package e2e
