//! Each recipe of the page on proxies, with the header lines that such a proxy sends.
