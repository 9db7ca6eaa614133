"""Programs that only wire the package together; `section` launches any section of the page."""
